"use strict";
// Shows fragments that were rendered before: compressed in the page, or fetched. Creates no markup; chart.js draws charts.
(() => {
  const at = (id) => document.getElementById(id);
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));
  const fetched = document.body.dataset.fetch;
  const blocks = all("script.block");
  const opened = new Map(); // block -> its document
  const aside = at("inspector"), inspected = at("inspected"), find = at("find"), status = at("status");
  const home = Array.from(inspected.childNodes); // shown until a cell or cause is selected

  // --- fragments
  const inflate = async (text) => {
    const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  };
  const parse = (markup) => new DOMParser().parseFromString(markup, "text/html"); // does not run scripts
  const source = async (key) => {
    if (fetched) {
      const answer = await fetch(fetched + key);
      if (!answer.ok) throw new Error(`${answer.status} for ${key}`);
      return parse(await answer.text());
    }
    let low = 0, high = blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (blocks[middle].dataset.first <= key) low = middle; else high = middle - 1;
    }
    if (!opened.has(low)) opened.set(low, inflate(blocks[low].textContent).then(parse));
    return opened.get(low);
  };
  const piece = async (key) => {
    const found = all("[data-key]", await source(key)).find((one) => one.dataset.key === key);
    return found ? Array.from(document.importNode(found, true).childNodes) : null;
  };

  // --- state in the URL: #cell/HASH or #cause/ID, then &name=value
  const read = () => {
    const state = { chosen: "", anchor: "", values: new Map() };
    for (const part of location.hash.slice(1).split("&").filter(Boolean)) {
      const [name, value] = part.split("=");
      if (value !== undefined) state.values.set(decodeURIComponent(name), decodeURIComponent(value));
      else if (part.includes("/")) state.chosen = part;
      else state.anchor = part;
    }
    return state;
  };
  const address = (state) => {
    const values = Array.from(state.values, ([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
    return "#" + [state.chosen, ...values].filter(Boolean).join("&");
  };
  const change = (edit) => {
    const state = read();
    edit(state);
    state.anchor = "";
    if (address(state) !== location.hash) history.pushState(null, "", address(state));
    return apply();
  };

  // --- inspector
  let shown = "";
  const inspect = async (key) => {
    if (key === shown) return;
    shown = key;
    for (const link of all("a.chosen")) link.classList.remove("chosen");
    aside.classList.toggle("asked", Boolean(key));
    let nodes = home;
    if (key) {
      try { nodes = await piece(key); } catch (error) { nodes = [document.createTextNode(String(error))]; }
      if (key !== shown) return; // another selection was made meanwhile
      nodes = nodes || [document.createTextNode("Not found in this run.")];
    }
    aside.hidden = nodes.length === 0;
    inspected.replaceChildren(...nodes);
    aside.scrollTop = 0;
    ready(inspected);
    for (const link of all(`a[href="#${CSS.escape(key)}"]`, at("grids"))) link.classList.add("chosen");
    status.textContent = key ? (inspected.querySelector("h2")?.textContent || "") : "";
  };
  const close = () => change((state) => { state.chosen = ""; });
  const ready = (inside) => {
    charts.enhance(inside);
    for (const button of all("button.copy", inside)) {
      button.hidden = !navigator.clipboard;
      button.onclick = () => navigator.clipboard.writeText(button.previousElementSibling.textContent).then(() => { button.textContent = "copied"; });
    }
  };

  // --- filters
  let filtered = false;
  const filter = (state) => {
    const wanted = state.values.get("verdict") || "", words = (state.values.get("find") || "").toLowerCase().split(/\s+/).filter(Boolean);
    for (const button of all("#counts button")) button.setAttribute("aria-pressed", String(button.dataset.verdict === wanted));
    if (find.value !== (state.values.get("find") || "") && document.activeElement !== find) find.value = state.values.get("find") || "";
    const filters = Boolean(wanted || words.length);
    if (!filters && !filtered) return; // nothing to change, skip thousands of cells
    filtered = filters;
    const fits = (kinds, text) => (!wanted || kinds.includes(wanted)) && words.every((word) => text().includes(word));
    for (const spot of all("#grids td:has(>a)")) {
      const kinds = Array.from(spot.classList, (name) => name.replace(/^v-/, ""));
      spot.classList.toggle("off", filters && !fits(kinds, () => describe(spot).toLowerCase()));
    }
    for (const line of all(".causes li")) line.hidden = !fits(line.dataset.verdicts.split(" "), () => line.textContent.toLowerCase());
    let number = 0;
    const rows = all("#cells tbody tr");
    for (const row of rows) {
      row.hidden = !fits(row.dataset.kinds.split(" "), () => row.textContent.toLowerCase());
      number += row.hidden ? 0 : 1;
    }
    if (filters && rows.length) status.textContent = `${number} of ${rows.length} cells`;
  };
  const describe = (spot) => {
    const table = spot.closest("table"), row = spot.parentElement.querySelector("th")?.textContent || "";
    const column = table.tHead?.rows[0]?.cells[spot.cellIndex]?.textContent || "", panel = table.caption?.firstChild?.textContent || "";
    return [panel.trim(), row, column, spot.firstElementChild?.getAttribute("aria-label")].filter(Boolean).join(" · ");
  };

  // --- grids: each layout is a fragment
  const lay = async (grid, state) => {
    const form = grid.querySelector(".choose");
    const selects = all("select:not([name=show])", form);
    grid.dataset.show = ["verdict", "time", "metric", "change"].includes(state.values.get("show")) ? state.values.get("show") : "verdict";
    form.elements.show.value = grid.dataset.show;
    if (!selects.length) return;
    const given = JSON.parse(grid.dataset.given ||= JSON.stringify(selects.map((one) => Number(one.value))));
    let axes = given.slice();
    selects.forEach((one, place) => {
      const named = Array.from(one.options).findIndex((option) => option.text === state.values.get(one.name));
      if (named < 0) return;
      const other = axes.indexOf(named);
      if (other >= 0) axes[other] = axes[place];
      axes[place] = named;
    });
    selects.forEach((one, place) => { one.value = String(axes[place]); });
    const name = (selects.length === 2 ? "." : "") + axes.join("."), key = `grid/${grid.dataset.grid}/${name}`;
    if ((grid.dataset.key || "") === key || (!grid.dataset.key && String(axes) === String(given))) return;
    const box = grid.querySelector(".panels");
    grid.kept ||= Array.from(box.childNodes);
    grid.dataset.key = key;
    const nodes = String(axes) === String(given) ? grid.kept : await piece(key);
    if (nodes && grid.dataset.key === key) { box.replaceChildren(...nodes); rove(box); }
  };

  // --- keyboard: each grid and each toolbar is one tab stop
  const rove = (box) => {
    const items = all("a[href^='#cell/'], [role=toolbar] button", box);
    const kept = items.find((one) => one.closest("td.bad")) || items[0];
    for (const one of items) one.tabIndex = one === kept ? 0 : -1;
  };
  const step = (link, key) => {
    const cell = link.closest("td"), table = cell.closest("table"), row = cell.parentElement;
    const tables = all("table", table.parentElement), rows = Array.from(table.tBodies[0].rows);
    const across = { ArrowLeft: -1, ArrowRight: 1 }[key] || 0, down = { ArrowUp: -1, ArrowDown: 1 }[key] || 0;
    let y = rows.indexOf(row), x = cell.cellIndex, t = tables.indexOf(table);
    for (;;) {
      y += down; x += across;
      const width = row.cells.length;
      if (x >= width) { t += 1; x = 1; } else if (x < 1) { t -= 1; x = width - 1; }
      const next = tables[t]?.tBodies[0].rows[y]?.cells[x];
      if (!next) return null;
      const found = next.querySelector("a[href^='#cell/']");
      if (found) return found;
    }
  };
  const move = (to, from) => {
    if (!to) return;
    if (from) from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  };
  const bad = () => all("#grids td.bad:not(.off)>a");
  const leap = (by) => {
    const links = bad();
    if (!links.length) return;
    const now = links.findIndex((one) => one.getAttribute("href") === `#${read().chosen}`);
    const next = links[(now + by + links.length + (now < 0 && by < 0 ? 1 : 0)) % links.length];
    change((state) => { state.chosen = next.getAttribute("href").slice(1); });
    next.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inside = event.target;
    if (inside.matches("input, select, textarea")) { if (event.key === "Escape") inside.blur(); return; }
    if (event.key.startsWith("Arrow") && inside.matches("#grids a[href^='#cell/']")) { event.preventDefault(); return move(step(inside, event.key), inside); }
    if (event.key.startsWith("Arrow") && inside.matches("#counts button")) {
      const buttons = all("#counts button"), by = event.key === "ArrowRight" || event.key === "ArrowDown" ? 1 : -1;
      event.preventDefault();
      return move(buttons[(buttons.indexOf(inside) + by + buttons.length) % buttons.length], inside);
    }
    if (at("help").open) return;
    if (event.key === "Escape") change((state) => { if (state.chosen) state.chosen = ""; else { state.values.delete("verdict"); state.values.delete("find"); } });
    else if (event.key === "n") leap(1);
    else if (event.key === "p") leap(-1);
    else if (event.key === "/") { event.preventDefault(); find.focus(); }
    else if (event.key === "?") at("help").showModal();
  });

  // --- sections loaded when opened
  const load = async (view) => {
    const box = view.querySelector(".load");
    if (!box || box.childNodes.length) return;
    const nodes = await piece(view.dataset.load);
    if (nodes && !box.childNodes.length) { box.replaceChildren(...nodes); ready(box); }
    filter(read());
  };

  const apply = async () => {
    const state = read();
    const target = state.anchor ? at(state.anchor) : null;
    if (target?.matches("details")) { target.open = true; await load(target); target.scrollIntoView(); }
    if ((state.values.get("verdict") || state.values.get("find")) && at("cells").open) await load(at("cells"));
    await Promise.all(all(".grid").map((grid) => lay(grid, state)));
    if (!state.anchor) await inspect(state.chosen);
    filter(state);
    document.documentElement.dataset.shown = state.chosen || "home";
  };

  for (const form of all(".choose")) {
    form.hidden = false;
    form.addEventListener("change", (event) => change((state) => {
      const one = event.target;
      state.values.set(one.name, one.options[one.selectedIndex].text);
    }));
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  at("counts").addEventListener("click", (event) => {
    const kind = event.target.closest("button")?.dataset.verdict;
    if (kind) change((state) => { if (state.values.get("verdict") === kind) state.values.delete("verdict"); else state.values.set("verdict", kind); });
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    const key = link?.getAttribute("href").slice(1) || "";
    if (!/^(cell|cause|metric)\//.test(key)) return;
    event.preventDefault();
    change((state) => { state.chosen = key; }).then(() => {
      if (event.detail === 0 || matchMedia("(max-width: 900px)").matches) aside.focus({ preventScroll: true });
    });
  });
  document.addEventListener("mouseover", (event) => {
    const link = event.target.closest("#grids td>a");
    if (link && !link.title) link.title = describe(link.parentElement);
  });
  let typed = 0;
  find.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => {
      if (find.value) at("cells").open = true;
      const state = read();
      if (find.value) state.values.set("find", find.value); else state.values.delete("find");
      history.replaceState(null, "", address(state));
      apply();
    }, 120);
  });
  for (const view of all("details[data-load]")) view.addEventListener("toggle", () => { if (view.open) load(view); });
  aside.querySelector(".close").addEventListener("click", close);
  at("help-open").addEventListener("click", () => at("help").showModal());
  for (const one of [find, at("help-open"), aside.querySelector(".close")]) one.hidden = false;
  for (const box of [...all(".panels"), ...all(".list"), at("counts").parentElement]) rove(box);
  ready(document);
  addEventListener("hashchange", apply);
  addEventListener("popstate", apply);
  apply();
})();
