"use strict";
// Keeps a page up to date: live parts, which the server sends whole and escaped, logs of running cells, and times.
{
  const all = (selector) => document.querySelectorAll(selector);
  const clock = () => Date.now() / 1000;
  const took = (s) => s < 60 ? `${Math.floor(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min ${String(Math.floor(s % 60)).padStart(2, "0")} s` : `${Math.floor(s / 3600)} h ${String(Math.floor(s % 3600 / 60)).padStart(2, "0")} min`;
  const rough = (s) => s < 90 ? `${Math.max(1, s < 10 ? Math.round(s) : Math.round(s / 10) * 10)} s` : s < 5400 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
  const ago = (s) => s < 60 ? "just now" : s < 5400 ? `${Math.round(s / 60)} min ago` : s < 129600 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} d ago`;
  const live = document.body.dataset.live;
  const tick = () => {
    for (const one of all("[data-at]")) {
      const text = ago(clock() - one.dataset.at);
      if (one.textContent !== text) one.textContent = text;
    }
    if (!live) return;
    for (const one of all("[data-since]")) one.textContent = took(Math.max(0, clock() - one.dataset.since));
    for (const one of all("[data-until]")) one.textContent = one.dataset.until > clock() ? `about ${rough(one.dataset.until - clock())} left` : "longer than expected";
  };
  tick();
  setInterval(tick, 1000);
  const show = (name, html) => {
    const part = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
    if (!part) return;
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") || document.activeElement.dataset.verdict : null;
    if (name.startsWith("c-")) { // a cell of a table, with its attributes
      const made = document.createElement("template");
      made.innerHTML = html;
      part.replaceWith(made.content);
    } else if (part.innerHTML !== html) part.innerHTML = html;
    if (focused) for (const one of all("a[href], button")) if ((one.getAttribute("href") || one.dataset.verdict) === focused) { one.focus({ preventScroll: true }); break; }
  };
  if (live && window.EventSource) {
    const source = new EventSource(`${live}?after=${document.body.dataset.line}`), state = document.getElementById("connection");
    const say = (text) => { if (state) state.textContent = text; };
    source.addEventListener("open", () => say("connected"));
    source.addEventListener("error", () => say("connection lost; retrying"));
    source.addEventListener("parts", (event) => {
      for (const [name, html] of Object.entries(JSON.parse(event.data))) show(name, html);
      tick();
      document.body.dataset.line = event.lastEventId;
      document.dispatchEvent(new Event("updated"));
    });
    source.addEventListener("reload", () => { source.close(); location.reload(); });
    let log = null;
    document.addEventListener("inspected", () => {
      log?.close();
      const box = document.querySelector("pre[data-log]");
      if (!box) return;
      log = new EventSource(live.replace(/events$/, `log/${box.dataset.log}`));
      log.addEventListener("open", () => { box.textContent = ""; });
      log.addEventListener("log", (event) => {
        const follows = box.scrollTop + box.clientHeight > box.scrollHeight - 20;
        box.textContent = (box.textContent + JSON.parse(event.data).text).slice(-200000);
        if (follows) box.scrollTop = box.scrollHeight;
      });
      log.addEventListener("end", () => log.close());
    });
  }
}
