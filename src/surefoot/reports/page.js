const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function themed(layout) {
  const axis = {gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true};
  const narrow = window.innerWidth < 720;
  const legend = {orientation: "h", y: -0.22, x: 0, font: {size: narrow ? 10 : 12}, ...(narrow ? {entrywidth: 130, y: -0.3} : {}), ...(layout.legend || {})};
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: colour("--ink"), size: narrow ? 11 : 12},
    margin: {l: 54, r: 12, t: 18, b: 44}, hoverlabel: {namelength: -1}, dragmode: narrow ? false : "zoom",
    ...layout, legend: legend, xaxis: {...axis, ...(layout.xaxis || {})}, yaxis: {...axis, ...(layout.yaxis || {})},
    annotations: (layout.annotations || [])
      .filter(each => !(narrow && each.name === "where there is room"))
      .map(each => ({arrowcolor: colour("--ink"), ...each})),
  };
}

function draw() {
  for (const [id, figure] of Object.entries(figures)) {
    Plotly.react(id, figure.data, themed(figure.layout), {responsive: true, displayModeBar: false, showLink: false, showEditInChartStudio: false, plotlyServerURL: ""});
  }
}

draw();
dark.addEventListener("change", draw);
