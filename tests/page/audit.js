({
  // The contrast (WCAG 2) of every text that is to be seen, where it is below 4.5.
  faint: () => {
    const numbers = (text) => text.match(/[\d.]+/g).map(Number);
    const light = (color) => {
      const [r, g, b] = color.map((one) => one / 255).map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const over = (above, below) => above.slice(0, 3).map((one, at) => one * (above[3] ?? 1) + below[at] * (1 - (above[3] ?? 1)));
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (text) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      return [r, g, b, a / 255];
    };
    const behind = (element) => {
      const layers = [];
      for (let one = element; one; one = one.parentElement) layers.push(rgba(getComputedStyle(one).backgroundColor));
      return layers.reverse().reduce((below, above) => over(above, below), [255, 255, 255]);
    };
    const faint = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("script, noscript")) continue;
      const [text, ground] = [rgba(getComputedStyle(element).color), behind(element)];
      const [one, two] = [light(over(text, ground)), light(ground)];
      const contrast = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
      if (contrast < 4.5) faint.push([walker.currentNode.data.trim().slice(0, 40), contrast.toFixed(2)]);
    }
    return faint;
  },
  // What can be reached and has no name.
  unnamed: () => [...document.querySelectorAll("button, input, select, textarea, [tabindex='0']")]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.labels?.length))
  .map((one) => one.outerHTML.slice(0, 80)),
})
