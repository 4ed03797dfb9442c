"use strict";
// Updates the live parts of this page. The server sends each part whole and escaped.
charts.enhance(document);
const live = document.body.dataset.live;
if (live && window.EventSource) {
  const source = new EventSource(`${live}?after=${document.body.dataset.line}`);
  source.addEventListener("parts", (event) => {
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      const part = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
      if (part && part.innerHTML !== html) part.innerHTML = html;
    }
    document.body.dataset.line = event.lastEventId;
  });
  source.addEventListener("reload", () => { source.close(); location.reload(); });
}
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "copied";
  });
}
// A click on a mark opens that cell in that run.
const columns = [...document.querySelectorAll("table.strips thead .strip a")];
document.querySelector("table.strips tbody")?.addEventListener("click", (event) => {
  const mark = event.target.closest(".strip i");
  if (!mark) return;
  const to = columns[[...mark.parentElement.children].indexOf(mark)];
  if (to && mark.textContent) location.href = `${to.href}#cell/${mark.closest("tr").dataset.hash}`;
});
