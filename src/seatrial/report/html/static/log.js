"use strict";
// Draws the visible lines. Job output is only ever set as text.
(async () => {
  const at = (id) => document.getElementById(id);
  const view = at("view"), height = at("height"), box = at("lines"), rail = at("rail"), find = at("find"), found = at("found");
  const bytes = Uint8Array.from(atob(at("data").textContent), (char) => char.charCodeAt(0));
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  const lines = text.split("\n"), ROW = 18, TALLEST = 15e6, LONGEST = 4000;
  const cut = Number(view.dataset.cut), leftOut = Number(view.dataset.leftOut);
  const numbers = (list) => (list ? list.split(",").map(Number) : []);
  const number = (index) => (index < cut ? index + 1 : index + 1 + leftOut);
  const index = (line) => Math.min(lines.length - 1, Math.max(0, line <= cut ? line - 1 : Math.max(cut, line - 1 - leftOut)));
  const errors = new Set(numbers(view.dataset.errors).map(index)), gaps = new Set(numbers(view.dataset.gaps).map(index));
  const marks = Array.from(errors).sort((a, b) => a - b);
  let hits = [], here = -1;

  // ESC [ n m colours; every other escape sequence and control character is dropped.
  const CODES = /\x1b(?:\[([0-9;]*)m|\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g;
  const last = (line) => { const plain = line.endsWith("\r") ? line.slice(0, -1) : line; return plain.slice(plain.lastIndexOf("\r") + 1); };
  const plain = (line) => last(line).replace(CODES, "");
  const style = (codes, before) => {
    const list = (codes || "0").split(";").map(Number);
    let { colour, bold } = before;
    for (let place = 0; place < list.length; place++) {
      const code = list[place];
      if (code === 0) { colour = ""; bold = false; }
      else if (code === 1) bold = true;
      else if (code === 22) bold = false;
      else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) colour = `fg${code % 10}`;
      else if (code === 39) colour = "";
      else if (code === 38 || code === 48) {
        if (code === 38 && list[place + 1] === 5) colour = list[place + 2] < 16 ? `fg${list[place + 2] % 8}` : "";
        place += list[place + 1] === 5 ? 2 : 4;
      }
    }
    return { colour, bold };
  };
  const span = (parent, words, now) => {
    if (!words) return;
    const made = document.createElement("span");
    made.className = [now.colour, now.bold ? "bold" : ""].filter(Boolean).join(" ");
    made.textContent = words;
    parent.append(made);
  };
  const row = (place) => {
    const made = document.createElement("div"), link = document.createElement("a");
    made.className = "line" + (errors.has(place) ? " error" : "") + (gaps.has(place) ? " gap" : "") + (place === here ? " here" : "") + (hitSet.has(place) ? " hit" : "");
    link.href = `#L${number(place)}`;
    link.textContent = number(place);
    link.tabIndex = -1;
    made.append(link);
    const line = last(lines[place]);
    let from = 0, now = { colour: "", bold: false };
    const shown = line.slice(0, LONGEST);
    for (const match of shown.matchAll(CODES)) {
      span(made, shown.slice(from, match.index), now);
      if (match[0].startsWith("\x1b[") && match[0].endsWith("m")) now = style(match[1], now);
      from = match.index + match[0].length;
    }
    span(made, shown.slice(from), now);
    if (line.length > LONGEST) span(made, ` … ${line.length - LONGEST} more characters`, { colour: "fg0", bold: false });
    return made;
  };
  let hitSet = new Set();
  const rows = () => Math.ceil(view.clientHeight / ROW);
  const most = () => Math.max(0, lines.length - rows() + 2);
  const total = () => Math.min(TALLEST, lines.length * ROW + 40);
  const scale = () => { const room = total() - view.clientHeight; return room > 0 ? most() / room : 0; };
  const draw = () => {
    const exact = lines.length * ROW + 40 <= TALLEST;
    const first = Math.max(0, Math.floor(exact ? view.scrollTop / ROW : view.scrollTop * scale()) - (exact ? 10 : 0));
    const end = Math.min(lines.length, first + rows() + 20);
    const made = document.createDocumentFragment();
    for (let place = first; place < end; place++) made.append(row(place));
    box.replaceChildren(made);
    box.style.top = `${exact ? first * ROW : view.scrollTop}px`;
  };
  const show = (place) => {
    here = place;
    const exact = lines.length * ROW + 40 <= TALLEST, top = Math.max(0, place - Math.floor(rows() / 3));
    view.scrollTop = exact ? top * ROW : top / scale();
    draw();
  };
  const go = (place) => { history.replaceState(null, "", `#L${number(place)}`); show(place); };
  const leap = (list, by) => {
    if (!list.length) return;
    const next = by > 0 ? list.find((place) => place > here) ?? list[0] : list.findLast((place) => place < here) ?? list.at(-1);
    go(next);
    found.textContent = `${list.indexOf(next) + 1} of ${list.length}${list === hits ? " lines" : " errors"}`;
  };
  const tick = (place, name) => {
    const made = document.createElement("i");
    made.className = name;
    made.style.top = `${(place / lines.length) * 100}%`;
    return made;
  };
  const marked = () => rail.replaceChildren(...hits.slice(0, 500).map((one) => tick(one, "hit")), ...marks.slice(0, 500).map((one) => tick(one, "")), ...Array.from(gaps, (one) => tick(one, "gap")));

  let typed = 0;
  find.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => {
      const words = find.value.toLowerCase();
      hits = [];
      if (words) lines.forEach((line, place) => { if (plain(line).toLowerCase().includes(words)) hits.push(place); });
      hitSet = new Set(hits);
      marked();
      if (hits.length) leap(hits, 1); else { found.textContent = words ? "not found" : ""; draw(); }
    }, 150);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === find) {
      if (event.key === "Enter") leap(hits, event.shiftKey ? -1 : 1);
      if (event.key === "Escape") view.focus();
      return;
    }
    if (event.key === "/") { event.preventDefault(); find.focus(); }
    else if (event.key === "n") leap(hits.length ? hits : marks, 1);
    else if (event.key === "p") leap(hits.length ? hits : marks, -1);
  });
  rail.addEventListener("click", (event) => go(index(number(Math.round((event.offsetY / rail.clientHeight) * lines.length)))));
  at("next").addEventListener("click", () => leap(marks, 1));
  at("back").addEventListener("click", () => leap(marks, -1));
  for (const one of [at("next"), at("back")]) one.hidden = !marks.length;
  find.hidden = false;
  let waiting = false;
  view.addEventListener("scroll", () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); } });
  addEventListener("resize", draw);
  const named = () => /^#L(\d+)$/.exec(location.hash);
  addEventListener("hashchange", () => { if (named()) show(index(Number(named()[1]))); });
  height.style.height = `${total()}px`;
  marked();
  show(named() ? index(Number(named()[1])) : marks[0] ?? 0);
  view.focus({ preventScroll: true });
  document.documentElement.dataset.shown = "log";
})();
