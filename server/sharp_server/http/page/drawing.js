// A pad to draw on, and the drawing as a learner of small images sees it: centred, scaled, few pixels.

import { h } from "./dom.js";

const SIDE = 320;
const PEN = 30;
const QUIET = 350;
/** Below so many pixels, examples fill their frame to the edge; above, they have a margin, as MNIST's have. */
const FILLS_FRAME = 16;
const FILLED = 20 / 28;

/** A pad; `done` gets the drawing after each pause. */
export function canvasPad(size, done) {
  const canvas = h("canvas", { class: "pad", width: SIDE, height: SIDE, tabindex: "0", role: "img", "aria-label": "A pad to draw on, with the mouse, a finger or a pen. Without those, use the other tabs." });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  let last = null, timer = 0, empty = true;

  function clear() {
    clearTimeout(timer);
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, SIDE, SIDE);
    pen.fillStyle = "#8d9aa5";
    pen.font = "18px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.fillText("Draw here", SIDE / 2, SIDE / 2);
    empty = true;
  }

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) * SIDE) / box.width, ((event.clientY - box.top) * SIDE) / box.height];
  };

  function stroke(to) {
    pen.strokeStyle = "#fff";
    pen.lineWidth = PEN;
    pen.lineCap = pen.lineJoin = "round";
    pen.beginPath();
    pen.moveTo(...last);
    pen.lineTo(to[0] + 0.01, to[1]);
    pen.stroke();
    last = to;
  }

  canvas.addEventListener("pointerdown", (event) => {
    clearTimeout(timer);
    if (empty) {
      pen.fillStyle = "#000";
      pen.fillRect(0, 0, SIDE, SIDE);
      empty = false;
    }
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    stroke(last);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => { if (last) for (const part of event.getCoalescedEvents?.() ?? [event]) stroke(place(part)); });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => {
    if (!last) return;
    last = null;
    timer = setTimeout(() => { const drawing = seen(canvas, size); if (drawing) done(drawing); }, QUIET);
  });
  clear();
  return { canvas, clear };
}

/** The box around the ink; null: there is none. */
function inked(pixels) {
  let box = null;
  for (let y = 0; y < SIDE; y += 1) for (let x = 0; x < SIDE; x += 1) {
    if (pixels[4 * (y * SIDE + x)] < 64) continue;
    box ??= { left: x, right: x, top: y, bottom: y };
    box.left = Math.min(box.left, x); box.right = Math.max(box.right, x); box.bottom = y;
  }
  return box;
}

/** A drawing with the learner's own pixels. */
function seen(canvas, { width, height }) {
  const box = inked(canvas.getContext("2d").getImageData(0, 0, SIDE, SIDE).data);
  if (!box) return null;
  const filled = Math.min(width, height) < FILLS_FRAME ? 1 : FILLED;
  const inkWidth = box.right - box.left + 1, inkHeight = box.bottom - box.top + 1;
  // By way of a frame four times as fine, whose pixels are averaged: thin strokes are not lost.
  const fine = 4, large = h("canvas", { width: width * fine, height: height * fine }), context = large.getContext("2d");
  const scale = Math.min((width * fine * filled) / inkWidth, (height * fine * filled) / inkHeight);
  context.fillStyle = "#000";
  context.fillRect(0, 0, large.width, large.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(canvas, box.left, box.top, inkWidth, inkHeight, (large.width - inkWidth * scale) / 2, (large.height - inkHeight * scale) / 2, inkWidth * scale, inkHeight * scale);
  const source = context.getImageData(0, 0, large.width, large.height).data, values = [];
  for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) {
    let sum = 0;
    for (let dy = 0; dy < fine; dy += 1) for (let dx = 0; dx < fine; dx += 1) sum += source[4 * ((y * fine + dy) * large.width + x * fine + dx)];
    values.push(Math.round((sum / (fine * fine * 255)) * 1000) / 1000);
  }
  const picture = () => {
    const small = h("canvas", { width, height, class: "preview", role: "img", "aria-label": "What the learner sees" }), paint = small.getContext("2d"), image = paint.createImageData(width, height);
    values.forEach((value, i) => { image.data.set([value * 255, value * 255, value * 255, 255], 4 * i); });
    paint.putImageData(image, 0, 0);
    return small;
  };
  return { values, preview: picture, blob: () => new Promise((resolve) => { picture().toBlob(resolve, "image/png"); }) };
}
