"use strict";
// Draws the data of each figure at its width, as templates/charts.html.j2 does, and makes it interactive.
const charts = (() => {
const { log10, floor, ceil, min, max, abs } = Math;
const find = (node, selector) => node.querySelector(selector), edges = node => node.getBoundingClientRect(), each = (list, made) => list.map(made).join("");

// --- text of values
const UNITS = { __proto__: null, // factor, name, and the least value if it is not the factor
  s: [[3600, " h", 7200], [60, " min", 120], [1, " s"], [1e-3, " ms"], [1e-6, " µs", 0]],
  B: [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [1024, " KiB"], [1, " B", 0]],
  "": [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k", 1e5], [1, "", 0]],
};
const digits = (v, n = 3) => {
  v = v * (1 + 1e-12) + 0;
  if (v && (abs(v) < 1e-4 || abs(v) >= 1e7)) { const [m, p] = v.toExponential(n - 1).split("e"); return `${+m}e${+p}`; }
  return (abs(v) >= 10 ** n ? floor(v + .5) : +v.toPrecision(n)).toLocaleString("en-US", { maximumFractionDigits: 9 });
};
const unitOf = (v, unit = "") => UNITS[unit] ? UNITS[unit].find(([f, , least = f]) => abs(v || 1) >= least) : [1, (unit[0] === "/" ? "" : " ") + unit];
const DAY = 86400, MONTH = 28 * DAY, TIMES = [1, 5, 15, 60, 300, 900, 3600, 10800, 21600, DAY, 2 * DAY, 7 * DAY, 14 * DAY, MONTH, 3 * MONTH, 6 * MONTH];
const date = (s, step) => {
  const [, day, month, year, time] = new Date(s * 1e3).toUTCString().match(/ 0?(\d+) (\w+) (\d+) (\S+)/);
  if (!step) return `${day} ${month} ${year} ${time.slice(0, 5)} UTC`;
  return step > MONTH ? `${month} ${year}` : step >= DAY || s % DAY === 0 ? `${day} ${month}` : step >= 60 ? time.slice(0, 5) : time;
};
const value = (v, axis) => {
  if (axis.kind === "date") return date(v);
  const [f, unit] = unitOf(v, axis.unit);
  return digits(v / f) + unit;
};

// --- scales and ticks
const nice = raw => { const p = 10 ** floor(log10(max(raw, 1e-290))); return [1, 2, 2.5, 5, 10].find(m => m * p >= raw * .999) * p; };
const domain = (axis, values, parts) => {
  const log = axis.kind === "log", known = log ? values.filter(v => v > 0) : values;
  let lo = axis.low ?? known.reduce((a, b) => min(a, b), known[0] ?? +log), hi = axis.high ?? known.reduce((a, b) => max(a, b), lo);
  if (lo === hi) {
    const room = axis.kind === "date" ? DAY / 2 : abs(lo) / 2 || 1;
    [lo, hi] = log ? [lo / 2, hi * 2] : [lo - room, hi + room];
  }
  if (parts && !axis.kind && !axis.ticks) {
    const f = unitOf(max(abs(lo), abs(hi)), axis.unit)[0], step = nice((hi - lo) / parts / f) * f;
    lo = axis.low ?? floor(lo / step + 1e-9) * step;
    hi = axis.high ?? ceil(hi / step - 1e-9) * step;
  }
  return [lo, hi];
};
const ticks = (axis, lo, hi, parts) => {
  const found = [];
  if (axis.ticks) return axis.ticks.filter((_, i) => i % ceil(axis.ticks.length / max(1, parts)) === 0);
  if (axis.kind === "log" && hi / lo > 8) {
    const a = floor(log10(lo)), b = ceil(log10(hi)), every = max(1, ceil((b - a) / max(2, parts)));
    for (let e = a; e <= b; e += every) for (const m of (b - a) * 3 <= parts ? [1, 2, 5] : [1]) found.push(m * 10 ** e);
    return found.filter(t => t >= lo * .999 && t <= hi * 1.001).map(t => [t, value(t, axis)]);
  }
  const raw = (hi - lo) / max(2, parts), dated = axis.kind === "date", most = max(abs(lo), abs(hi)), [f, unit] = unitOf(most, axis.unit);
  const step = dated ? TIMES.find(t => t >= raw) || nice(raw) : nice(raw / f) * f;
  for (let i = ceil(lo / step - 1e-9); i <= floor(hi / step + 1e-6); i++) found.push(i * step + 0);
  return found.map(t => [t, dated ? date(t, step) : t ? digits(t / f, max(4, ceil(log10(most / step)) + 1)) + unit : "0"]);
};
const scale = ({ kind }, lo, hi, p0, p1) => {
  const [f, g] = kind === "log" ? [v => log10(v > 0 ? v : lo), v => 10 ** v] : [v => v, v => v], a = f(lo), k = (p1 - p0) / (f(hi) - a);
  return [v => p0 + (f(v) - a) * k, p => g(a + (p - p0) / k)];
};

// --- shapes
const F = v => floor(v * 10 + .5) / 10;
const esc = text => String(text).replace(/[&<>"]/g, sign => `&#${sign.charCodeAt(0)};`);
const shape = (tag, names, of = names.split(" ")) => (...values) => `<${tag}${each(of, (name, i) => name !== "_" && values[i] != null ? ` ${name}="${values[i].toFixed ? F(values[i]) : esc(values[i])}"` : "")}>${esc(values[of.indexOf("_")] ?? "")}</${tag}>`;
const text = shape("text", "x y text-anchor _ class"), line = shape("line", "x1 y1 x2 y2 class"), path = shape("path", "d class");
const circle = shape("circle", "cx cy r class"), box = shape("rect", "x y width height class fill-opacity");
const rect = (x, y, w, h, ...more) => box(x, y, max(0, w), max(0, h), ...more);
const hue = i => `s${i % 6 + 1}${i > 5 ? " alt" : ""}`, isBar = c => /bars|lane|heat/.test(c.kind);
const load = json => {
  const plot = { x: {}, y: {}, bands: [], marks: [], height: 190, ...JSON.parse(json) };
  plot.curves.forEach((c, i) => { c.points = c.points.map(([x, y, end, text = "", link, state, heat]) => ({ x, y, end: isBar(c) ? end : x, text, link, state, heat, i })); });
  return plot;
};
const drawCurve = (c, colour, X, Y, y0, high) => {
  if (isBar(c)) {
    const row = abs(Y(1) - Y(0)), heat = c.kind === "heat", thick = heat ? row - 1 : min(14, row * .72);
    return each(c.points, p => {
      const a = X(p.x), w = X(p.end) - a, y = Y(p.y);
      return c.kind === "bars" ? rect(a + .5, y, w - 1, Y(max(0, y0)) - y, `col ${colour}`) : rect(a, y - thick / 2, max(1.5, w), thick, `lane ${p.state || colour}`, heat ? .1 + .9 * p.heat : null);
    });
  }
  let d = "", pen = false;
  const dots = {}, n = c.points.length, dotted = c.kind === "dots" || n === 1 || c.kind === "line" && n <= 60;
  for (const p of c.points) {
    const a = F(X(p.x)), b = F(Y(p.y)), kind = p.state ? `${p.state} big` : colour, above = p.y > high;
    if (!above) {
      d += !pen ? `M${a} ${b}` : c.kind === "step" ? `H${a}V${b}` : `L${a} ${b}`;
      dots[kind] = `${dots[kind] || ""}M${a} ${b}h0`;
    }
    pen = !above;
  }
  return (c.kind === "dots" ? "" : path(d, `line ${colour}`)) + (dotted ? each(Object.entries(dots), ([kind, d]) => path(d, `dots ${kind}`)) : "");
};
const draw = (plot, w, alt, view, off = new Set()) => {
  const { x: ax, y: ay, bands, marks, height: h, curves } = plot, shown = curves.filter((_, i) => !off.has(i));
  const top = marks.some(m => m.label && !m.axis) ? 22 : 10, H = h - top - 24, parts = max(2, floor(h / 44));
  const [x0, x1] = view || domain(ax, curves.flatMap(c => c.points.flatMap(p => [p.x, p.end])));
  const seen = shown.flatMap(c => c.points.filter(p => !view || p.end >= x0 && p.x <= x1).map(p => p.y));
  seen.push(...bands.flatMap(b => b.axis ? [] : [b.low, b.high]), ...marks.map(m => m.axis && m.at), ...curves.map(c => c.kind === "bars" ? 0 : null));
  const [y0, y1] = domain(ay, seen.filter(v => v != null), parts), high = ay.ticks ? Infinity : ay.high ?? Infinity;
  const yt = ticks(ay, y0, y1, ay.ticks ? max(1, floor(H / 12)) : parts);
  const left = min(max(plot.group ? 56 : 34, max(0, ...yt.map(t => t[1].length)) * 6.2 + 12), w * .4), W = w - left - 14, most = floor((left - 12) / 6.2 + 1e-9);
  const [X, invX] = scale(ax, x0, x1, 5, W - 5), [Y] = scale(ay, y0, y1, H, 0);
  let back = "", front = "", labels = "";
  bands.forEach((b, i) => {
    const flat = !b.axis, a = flat ? Y(min(b.high ?? y1, y1)) : X(b.low), size = (flat ? Y(max(b.low ?? y0, y0)) : X(b.high)) - a;
    back += flat ? rect(0, a, W, size, "band") : rect(a, 0, size, H, `part${i % 2}`);
    if (b.label && size > (flat ? 14 : b.label.length * 6.2)) labels += flat ? text(left + 6, top + a + size - 4, "start", b.label) : text(left + a + 4, top + 10, "start", b.label);
  });
  for (const [t, name] of yt) {
    if (!ay.ticks) back += line(0, Y(t), W, Y(t), "rule");
    labels += text(left - 7, top + Y(t) + 4, "end", name.length > most ? `${name.slice(0, most - 1)}…` : name);
  }
  for (const [t, name] of ticks(ax, x0, x1, floor(W / 72))) {
    back += line(X(t), 0, X(t), H, "rule");
    labels += text(left + X(t), top + H + 16, X(t) > W - 16 ? "end" : "middle", name);
  }
  for (const { at: v, label, axis, kind = "change" } of marks) {
    const at = (axis ? Y : X)(v);
    if (at < -1 || at > (axis ? H : W) + 1) continue;
    front += axis ? line(0, at, W, at, `mark ${kind}`) : line(at, 0, at, H, `mark ${kind}`);
    if (label) labels += axis ? text(left + W - 4, top + at - 5, "end", label, kind) : text(left + at, 14, at > W / 2 ? "end" : "start", label, kind);
  }
  for (const c of shown) {
    const colour = hue(curves.indexOf(c));
    front += drawCurve(c, colour, X, Y, y0, high);
    for (const p of c.points) if (p.y > high && p.x >= x0 && p.x <= x1) labels += text(left + X(p.x), top + 9, X(p.x) > W / 2 ? "end" : "start", `▲ ${value(p.y, ay)}`, colour);
  }
  const inner = body => `<svg x="${F(left)}" y="${top - 5}" width="${F(W)}" height="${H + 10}" viewBox="0 -5 ${F(W)} ${H + 10}">${body}</svg>`;
  return { X, Y, invX, W, H, left, top, html: `<svg viewBox="0 0 ${w} ${h}" width="${w}" height="${h}" role="img" aria-label="${esc(alt)}">${inner(back)}${inner(front)}${labels}<g class="hover" transform="translate(${F(left)} ${top})"></g></svg>` };
};

const tableOf = ({ x, y, curves }) => {
  const row = (tag, link, ...fields) => `<tr>${each(fields, (field, i) => `<${tag}>${link && i === 3 ? `<a href="${esc(link)}">${esc(field)}</a>` : esc(field)}</${tag.slice(0, 2)}>`)}</tr>`;
  return `<table><thead>${row('th scope="col"', "", "series", x.label || "at", "value", "about")}</thead><tbody>${each(curves, c => each(c.points, p => row("td", p.link, c.name, value(p.x, x) + (isBar(c) ? ` to ${value(p.end, x)}` : ""), y.ticks ? "" : value(p.y, y), p.text)))}</tbody></table>`;
};

// --- interaction
const make = (tag, props) => Object.assign(document.createElement(tag), props);
let card;
const tip = () => card ??= document.body.appendChild(make("div", { className: "tip", role: "status" }));
const enhance = figure => {
  const plot = load(figure.dataset.plot), { curves, group, x: ax, y: ay } = plot, byPoint = curves.some(c => c.points.some(p => p.text));
  const area = find(figure, ".plot"), keys = [...figure.querySelectorAll(".keys li")], off = new Set();
  let L, width, sure, at = null, from = null, row = 0, col = 0;
  const me = figure.chart = { group }, peers = () => group ? Array.from(document.querySelectorAll("figure.chart"), one => one.chart).filter(one => one?.group === group) : [me];
  const open = () => { if (at?.link) location.href = at.link; };
  me.draw = () => {
    width = area.clientWidth;
    if (!width) return;
    L = draw(plot, width, area.dataset.alt, me.view, off);
    area.innerHTML = L.html;
    reset.hidden = !me.view;
  };
  // the bar at x, the last step or the nearest point
  const reading = (c, x) => c.points.reduce((best, p) => (isBar(c) ? p.x <= x && x < p.end : c.kind === "step" ? p.x <= x : !best || abs(p.x - x) < abs(best.x - x)) ? p : best, null);
  me.show = (x, point) => {
    const found = [], px = x == null || !L ? -1 : L.X(x), on = px >= 0 && px <= L.W;
    let marks = on ? line(px, 0, px, L.H, "cross") : "";
    curves.forEach((c, i) => {
      const p = !on || off.has(i) || (point ? point.i !== i : byPoint) ? null : point || reading(c, x);
      if (p) found.push(p);
      if (p && !/lane|heat/.test(c.kind)) marks += circle(/line|dots/.test(c.kind) ? L.X(p.x) : px, max(0, L.Y(p.y)), 4.5, `at ${p.state || hue(i)}`);
      if (keys[i]) find(keys[i], "output").textContent = p && !byPoint ? value(p.y, ay) : "";
    });
    if (L) find(area, ".hover").innerHTML = marks;
    return found;
  };
  const hover = (x, p) => {
    for (const one of peers()) if (one !== me) one.show(x);
    const found = me.show(x, at = p), t = tip();
    if (t.hidden = !found.length) return;
    t.innerHTML = p ? (ay.ticks ? "" : `<b>${esc(value(p.y, ay))}</b>`) + each((p.text || curves[p.i].name).split("\n"), one => `<p>${esc(one)}</p>`) + (p.link ? "<p class=go>Enter or click opens it</p>" : "")
      : `<p>${esc(ax.label || "")} <b>${esc(value(x, ax))}</b></p>` + each(found, p => `<p class="${hue(p.i)}"><i></i>${esc(curves[p.i].name)}<b>${esc(value(p.y, ay))}</b></p>`);
    const r = edges(t), b = edges(area), px = b.left + L.left + L.X(x), py = b.top + L.top + (p ? L.Y(p.y) : L.H / 3) - r.height / 2;
    t.style.left = `${max(8, px + 24 + r.width > innerWidth ? px - r.width - 16 : px + 16)}px`;
    t.style.top = `${max(8, min(innerHeight - r.height - 8, py))}px`;
  };
  const leave = () => { for (const one of peers()) one.show(null); tip().hidden = true; at = null; };
  const zoom = view => { leave(); for (const one of peers()) { one.view = view; one.draw(); } };
  const nearest = (mx, my) => {
    let best = null, d = 900;
    curves.forEach((c, i) => off.has(i) || c.points.forEach(p => {
      const thick = isBar(c) ? min(10, abs(L.Y(1) - L.Y(0)) / 2) : 0, q = max(L.X(p.x) - mx, mx - L.X(p.end), 0) ** 2 + max(abs(L.Y(p.y) - my) - thick, 0) ** 2;
      if (p.text && (q < d || q === d && !thick)) [d, best] = [q, p];
    }));
    return best;
  };

  const tools = find(figure, "figcaption").appendChild(make("span", { className: "tools" }));
  const button = (textContent, onclick) => tools.appendChild(make("button", { type: "button", textContent, onclick }));
  const reset = button("Reset zoom", () => zoom(null)), axis = plot[plot.log];
  if (axis) button("Log", e => { axis.kind = axis.kind ? undefined : "log"; e.target.ariaPressed = !!axis.kind; me.draw(); }).ariaPressed = !!axis.kind;
  keys.forEach((key, i) => {
    const b = make("button", { type: "button", innerHTML: key.innerHTML, ariaPressed: true });
    b.onclick = () => { if (!off.delete(i) && off.size < keys.length - 1) off.add(i); b.ariaPressed = !off.has(i); me.draw(); };
    key.replaceChildren(b);
  });

  // on a touch screen the second tap opens
  const where = e => { const b = edges(area); return [max(0, min(L.W, e.clientX - b.left - L.left)), e.clientY - b.top - L.top]; };
  area.onpointermove = e => {
    const [mx, my] = where(e), p = byPoint ? nearest(mx, my) : null;
    if (from != null && abs(mx - from) > 4) { leave(); find(area, ".hover").innerHTML = rect(min(mx, from), 0, abs(mx - from), L.H, "drag"); return; }
    area.classList.toggle("link", !!p?.link);
    if (byPoint && !p) leave(); else hover(p && p.x === p.end ? p.x : L.invX(mx), p);
  };
  area.onpointerdown = e => {
    const before = at;
    area.onpointermove(e);
    sure = e.pointerType === "mouse" || before === at;
    from = where(e)[0];
    area.setPointerCapture(e.pointerId);
  };
  area.onpointerup = e => {
    const a = from, mx = where(e)[0];
    from = null;
    if (abs(mx - a) > 8) zoom([min(a, mx), max(a, mx)].map(L.invX)); else if (sure) open();
  };
  area.onpointerleave = e => { if (e.pointerType === "mouse") area.onblur(); };
  area.onblur = area.onpointercancel = () => { from = null; leave(); };
  area.ondblclick = () => zoom(null);

  Object.assign(area, { tabIndex: 0, role: "group", ariaLabel: `${plot.title}. Arrow keys read values, plus zooms in, Escape resets.` });
  area.onkeydown = e => {
    const seen = curves.filter((c, i) => !off.has(i) && c.points.length), by = { ArrowRight: 1, ArrowLeft: -1, Home: -1e6, End: 1e6 }[e.key], turn = { ArrowUp: -1, ArrowDown: 1 }[e.key];
    if (!seen.length) return;
    row = (row + (turn || 0) + seen.length) % seen.length;
    const { points } = seen[row], p = points[col = max(0, min(points.length - 1, col + (by || 0)))], m = L.X(p.x);
    if (by || turn) { e.preventDefault(); hover(p.x, byPoint ? p : null); }
    if (e.key === "Enter") open();
    if (e.key === "+") zoom([max(0, m - L.W / 4), min(L.W, m + L.W / 4)].map(L.invX));
    if ((e.key === "-" || e.key === "Escape") && (me.view || !tip().hidden)) { e.stopPropagation(); zoom(null); }
  };

  const table = find(figure, ".data") || figure.appendChild(make("details", { className: "data", innerHTML: "<summary>Data</summary>" }));
  table.ontoggle = () => { if (!find(table, "table")) table.insertAdjacentHTML("beforeend", `<div class="scroll" tabindex="0" role="group" aria-label="${esc(plot.title)}">${tableOf(plot)}</div>`); };
  new ResizeObserver(() => { if (area.clientWidth !== width) me.draw(); }).observe(area);
};
return { load, draw, enhance: inside => { for (const figure of inside.querySelectorAll("figure.chart")) if (!figure.chart) enhance(figure); } };
})();
