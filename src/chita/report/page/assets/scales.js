// Map values to pixels, and choose the ticks.

function span(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  return low === high ? [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10] : [low, high];
}

function padded([low, high], axis) {
  if (axis.names) return [-0.5, axis.names.length - 0.5];
  if (axis.log) return [low / 1.25, high * 1.25];
  const room = 0.06 * (high - low);
  return [low - room, high + room];
}

function scaleFor(axis, values, from, to, pitch) {
  const positive = axis.log ? values.filter((value) => value > 0) : values;
  const [low, high] = padded(span(positive), axis);
  const place = axis.log ? Math.log : (value) => value;
  const factor = (to - from) / (place(high) - place(low));
  const scale = (value) => from + factor * (place(value) - place(low));
  scale.ticks = ticksFor(axis, low, high, Math.abs(to - from) / pitch);
  return scale;
}

// Return at most `count` ticks, but at least 4; all names, or the ticks of a logarithmic axis.
function ticksFor(axis, low, high, count) {
  if (axis.names) return axis.names.map((_, place) => place);
  if (axis.log) return logTicks(low, high);
  const whole = axis.form === "count";
  return linearTicks(low, high, Math.max(4, Math.floor(count)), whole);
}

function linearTicks(low, high, count, whole) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  let step = [1, 2, 2.5, 5, 10].map((digit) => digit * power).find((size) => size >= raw);
  if (whole) step = Math.max(1, Math.round(step));
  const ticks = [];
  for (let place = Math.ceil(low / step); place * step <= high; place += 1) {
    ticks.push(Number((place * step).toPrecision(12)));
  }
  return ticks;
}

// Return the powers of ten, or 1, 2 and 5 times these if there are fewer than two.
function logTicks(low, high) {
  const ticks = (digits) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const digit of digits) found.push(Number(`${digit}e${power}`));
    }
    return found.filter((value) => value >= low && value <= high);
  };
  const powers = ticks([1]);
  if (powers.length > 6) return powers.filter((_, place) => place % 2 === 0);
  return powers.length >= 2 ? powers : ticks([1, 2, 5]);
}
