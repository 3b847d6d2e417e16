// The NICs, in WebAssembly: a request goes in and an answer comes out, both as JSON.

async function loadEngine(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const { instance } = await WebAssembly.instantiate(bytes, {});
  const { memory, playground_reserve, playground_call, playground_explain, playground_answer } = instance.exports;
  const exchange = (input, call) => {
    // The memory may be another one after each call.
    const at = playground_reserve(input.length);
    new Uint8Array(memory.buffer, at, input.length).set(input);
    const length = call();
    return new TextDecoder().decode(new Uint8Array(memory.buffer, playground_answer(), length));
  };
  return {
    text: (request) => exchange(new TextEncoder().encode(request), playground_call),
    ask(request) {
      const answer = JSON.parse(this.text(JSON.stringify(request)));
      if (answer.error) throw new Error(answer.error);
      return answer;
    },
    explain: (capture) => exchange(capture, playground_explain),
  };
}
