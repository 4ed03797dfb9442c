"use strict";
// Shows fragments that were rendered before: compressed in the page, or fetched. Creates no markup; chart.js draws charts.
(() => {
  const at = (id) => document.getElementById(id);
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));
  const fetched = document.body.dataset.fetch;
  const blocks = all("script.block");
  const opened = new Map(); // block -> its document
  const aside = at("inspector"), inspected = at("inspected"), find = at("find"), status = at("status"), nothing = at("nothing");
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
  const inspect = async (key, asked = Boolean(key)) => { // not asked: the first match of a search
    aside.classList.toggle("asked", asked);
    if (key === shown) return;
    shown = key;
    for (const link of all("a.chosen")) link.classList.remove("chosen");
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
    for (const link of all(`#grids a[href="#${key}"], .causes a[href="#${key}"]`)) link.classList.add("chosen");
    document.dispatchEvent(new Event("inspected"));
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

  // --- the first screen: a row of the board selects its charts
  const board = async (hash) => {
    const box = at("shown");
    if (!box || hash === (box.dataset.cell || "")) return;
    box.dataset.cell = hash;
    box.kept ||= Array.from(box.childNodes);
    const first = all("#first [aria-current]")[0];
    box.given ||= first?.getAttribute("href");
    const found = hash ? (await piece(`cell/${hash}`) || []).find((one) => one.matches?.(".first")) : null;
    if (box.dataset.cell !== hash) return;
    box.replaceChildren(...(found ? [found] : box.kept));
    const href = found ? `#board=${hash}` : box.given;
    for (const link of all("#first a[href^='#board=']")) {
      const on = link.getAttribute("href") === href;
      if (on) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
      link.closest("tr")?.classList.toggle("chosen", on);
    }
    ready(box);
  };

  // --- search: words, verdicts, and axis:value; the last two become chips
  const VERDICTS = ["passed", "failed", "slower", "faster", "infra", "timeout", "invalid", "skipped", "xfail", "xpass", "flaky", "newly", "running", "retrying", "confirming", "queued", "waiting"];
  let cells; // all of them, from the fragment of the table
  const index = () => cells ||= source("view/cells").then((page) => all("[data-key='view/cells'] tbody tr", page).map((row) => {
    const link = row.querySelector("a"), id = link.textContent.toLowerCase(), [trial, axes = ""] = id.split(/\[(.*)\]$/s);
    return { hash: link.getAttribute("href").slice(6), kinds: row.dataset.kinds.split(" "), causes: (row.dataset.causes || "").split(" "), text: row.textContent.toLowerCase(), axes: `,trial=${trial},${axes},` };
  }));
  const low = (text) => text.toLowerCase(), exact = (word) => `,${low(word).replace(":", "=")},`;
  const asked = async (query) => { // the parts of a query
    const words = query.split(/\s+/).filter(Boolean), known = words.some((word) => word.includes(":")) ? await index() : [];
    const kinds = words.filter((word) => VERDICTS.includes(low(word))), axes = words.filter((word) => word.includes(":") && known.some((one) => one.axes.includes(exact(word))));
    return { words: words.filter((word) => !kinds.includes(word) && !axes.includes(word)), kinds, axes };
  };
  const fits = (one, { words, kinds, axes }) => (!kinds.length || kinds.some((kind) => one.kinds.includes(low(kind))))
    && axes.every((word) => axes.some((other) => other.split(":")[0] === word.split(":")[0] && one.axes.includes(exact(other))))
    && words.map(low).every((word) => one.text.includes(word) || one.axes.includes(word.replace(":", "=")));
  let filtered = false;
  const filter = async (state) => {
    const query = state.values.get("find") || "", parts = await asked(query), cause = /^cause\/(.*)/.exec(state.chosen)?.[1];
    const searches = Boolean(query.trim()), filters = searches || Boolean(cause);
    for (const button of all("#counts button")) button.setAttribute("aria-pressed", String(parts.kinds.some((kind) => low(kind) === button.dataset.verdict)));
    pin(parts);
    if (!filters && !filtered) return; // nothing to change, skip thousands of cells
    filtered = filters;
    const every = filters ? await index() : [], matches = every.filter((one) => fits(one, parts));
    const hits = matches.filter((one) => !cause || one.causes.includes(cause));
    if ((read().values.get("find") || "") !== query) return; // typed on meanwhile
    if (matches.length && !hits.length) return close(); // a search for other cells than those of the open cause
    const hashes = new Set(hits.map((one) => one.hash)), causes = new Set(hits.flatMap((one) => one.causes));
    for (const spot of all("#grids td>a[href^='#cell/']")) {
      const own = spot.dataset.cells?.split(" ") || [spot.getAttribute("href").slice(6)];
      spot.parentElement.classList.toggle("off", filters && !own.some((hash) => hashes.has(hash)));
    }
    for (const line of all(".causes li")) {
      const text = line.textContent.toLowerCase(), said = !parts.kinds.length && !parts.axes.length && parts.words.every((word) => text.includes(low(word)));
      line.hidden = searches && !causes.has(line.dataset.cause) && !said;
    }
    for (const more of all("#why details.more")) if (searches) more.open = true;
    const rows = all("#cells tbody tr");
    for (const row of rows) row.hidden = filters && !hashes.has(row.querySelector("a").getAttribute("href").slice(6));
    nothing.hidden = !searches || hits.length > 0 || all(".causes li:not([hidden])").length > 0;
    if (!nothing.hidden) {
      const axes = new Set(every.flatMap((one) => one.axes.split(",").filter(Boolean).map((axis) => axis.split("=")[0])));
      const wrong = parts.words.find((word) => word.includes(":") && !axes.has(low(word).split(":")[0]));
      nothing.textContent = `No cells match ${query.trim()}.` + (wrong ? ` Axes are ${Array.from(axes).join(", ")}.` : "");
    }
    if (filters) status.textContent = nothing.hidden ? `${hits.length} of ${every.length} cells` : nothing.textContent;
    if (searches && !state.chosen && !state.anchor) {
      const first = all(".causes li:not([hidden])")[0]?.dataset.cause;
      const hit = hits.find((one) => one.causes.includes(first)) || hits[0];
      await inspect(hit ? `cell/${hit.hash}` : "", false);
    }
  };
  const search = (query) => { // in the address, without a step back for every key
    const state = read(), text = query.join(" ");
    if (text.trim()) state.values.set("find", text); else state.values.delete("find");
    history.replaceState(null, "", address(state));
    return apply();
  };
  const chips = at("chips");
  const pinned = () => all("button", chips).map((chip) => chip.dataset.word);
  const pin = ({ words, kinds, axes }) => {
    const focused = document.activeElement === find, typed = focused && !/\s$/.test(find.value) ? find.value.split(/\s+/) : [];
    const chosen = [...kinds, ...axes].filter((word) => !typed.includes(word)); // not a chip before a space follows
    if (String(chosen) !== String(pinned())) chips.replaceChildren(...chosen.map((word) => {
      const chip = Object.assign(document.createElement("button"), { type: "button", textContent: `${word} ✕`, ariaLabel: `Remove ${word}` });
      chip.dataset.word = word;
      return chip;
    }));
    if (!typed.length) find.value = words.join(" ") + (focused && words.length ? " " : "");
  };
  const describe = (spot) => {
    const table = spot.closest("table"), row = spot.parentElement.querySelector("th")?.textContent || "";
    const column = table.tHead?.rows[0]?.cells[spot.cellIndex]?.textContent || "", panel = table.caption?.firstChild?.textContent || "";
    return [panel.trim(), row, column, spot.firstElementChild?.getAttribute("aria-label")].filter(Boolean).join(" · ");
  };

  // --- grids: each layout is a fragment
  const lay = async (grid, state) => {
    const form = grid.querySelector(".choose");
    if (!form) return;
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

  // --- keyboard: each grid is one tab stop
  const rove = (box) => {
    const items = all("a[href^='#cell/']", box);
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
    if (at("help").open) return;
    if (event.key === "Escape") change((state) => { if (state.chosen) state.chosen = ""; else state.values.delete("find"); });
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
    if (nodes && !box.childNodes.length) { box.replaceChildren(...nodes); ready(box); filtered = true; }
    await filter(read());
  };

  const apply = async () => {
    const state = read();
    const target = state.anchor ? at(state.anchor) : null;
    if (target?.matches("details")) { target.open = true; await load(target); target.scrollIntoView(); }
    await Promise.all([...all(".grid").map((grid) => lay(grid, state)), board(state.values.get("board") || "")]);
    if (!state.anchor && (state.chosen || !state.values.get("find"))) await inspect(state.chosen);
    await filter(state);
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
  document.addEventListener("click", (event) => {
    const kind = event.target.closest("#counts button")?.dataset.verdict;
    if (!kind) return;
    find.blur();
    change((state) => {
      const words = (state.values.get("find") || "").split(/\s+/).filter(Boolean), kept = words.filter((word) => low(word) !== kind);
      if (kept.length === words.length) kept.push(kind);
      if (kept.length) state.values.set("find", kept.join(" ")); else state.values.delete("find");
    });
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    const key = link?.getAttribute("href").slice(1) || "";
    if (key.startsWith("board=")) {
      event.preventDefault();
      change((state) => { state.values.set("board", key.slice(6)); });
    }
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
    typed = setTimeout(() => search([...pinned(), find.value]), 120);
  });
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { find.value += " "; search([...pinned(), find.value]); }
    if (event.key === "Backspace" && !find.value) search(pinned().slice(0, -1));
  });
  chips.addEventListener("click", (event) => {
    const word = event.target.closest("button")?.dataset.word;
    search([...pinned().filter((one) => one !== word), find.value]);
    find.focus();
  });
  for (const view of all("details[data-load]")) view.addEventListener("toggle", () => { if (view.open) load(view); });
  aside.querySelector(".close").addEventListener("click", close);
  at("help-open").addEventListener("click", () => at("help").showModal());
  for (const one of [find.parentElement, at("help-open"), aside.querySelector(".close")]) one.hidden = false;
  for (const box of [...all(".panels"), ...all(".list")]) rove(box);
  ready(document);
  document.addEventListener("updated", () => { // a live page replaced some of its parts
    for (const box of [...all(".panels"), ...all(".list")]) rove(box);
    for (const link of all(`#grids a[href="#${shown}"], .causes a[href="#${shown}"]`)) link.classList.add("chosen");
    cells = undefined;
    filter(read());
  });
  addEventListener("hashchange", apply);
  addEventListener("popstate", apply);
  apply();
})();
