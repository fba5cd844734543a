// The page can be read before Plotly, at its end, is loaded. A figure is drawn when it is about to be seen: a folded one
// has no width to fit into. Plotly's offer to upload figures is turned off: a report stays where it is.
const drawn = new Set();
function draw(box) {
  if (drawn.has(box.id)) return;
  drawn.add(box.id);
  const spec = JSON.parse(document.getElementById(box.id + "-data").textContent);
  Plotly.newPlot(box, spec.data, spec.layout, {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false,
    plotlyServerURL: "",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  });
}
const near = new IntersectionObserver((seen) => {
  for (const entry of seen) if (entry.isIntersecting) draw(entry.target);
}, {rootMargin: "400px"});
const boxes = document.querySelectorAll("div.plot");
for (const box of boxes) near.observe(box);
addEventListener("beforeprint", () => {
  for (const box of boxes) if (box.offsetParent) draw(box);
});
