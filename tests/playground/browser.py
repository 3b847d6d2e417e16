"""Headless Chromium, driven through its debugging pipe: no driver, and nothing but the standard library."""

import base64
import json
import os
import subprocess
import tempfile
import time

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--allow-file-access-from-files",
         "--force-color-profile=srgb", "--remote-debugging-pipe"]


class Browser:
    def __init__(self, program="chromium"):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        down, up = os.pipe(), os.pipe()
        # Chromium reads commands from descriptor 3 and writes to 4.
        command = [program, *FLAGS, f"--user-data-dir={self.profile.name}"]
        shell = ["sh", "-c", f'exec "$@" 3<&{down[0]} 4>&{up[1]}', "sh", *command]
        self.process = subprocess.Popen(shell, pass_fds=(down[0], up[1]), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(down[0])
        os.close(up[1])
        self.write, self.read = os.fdopen(down[1], "wb", 0), os.fdopen(up[0], "rb")
        self.number, self.session, self.buffer, self.errors = 0, None, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "DOM"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.write.close()
        self.read.close()
        self.profile.cleanup()

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def message(self):
        while b"\0" not in self.buffer:
            piece = os.read(self.read.fileno(), 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self.buffer += piece
        one, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(one)
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        return message

    def open(self, url, width=1440, height=1000, dark=False):
        """Opens a page and returns when it says that it is ready."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        # A change of the part behind # alone would not load anything.
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && document.body.dataset.ready !== undefined")

    def until(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition}: not within {seconds} s; {self.errors}")
            time.sleep(0.02)

    def run(self, script):
        """The value of an expression; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", script))
        return result["result"].get("value")

    def click(self, selector):
        """A real click in the middle of an element, which is scrolled into sight."""
        box = self.run(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            if (!e) return null;
            e.scrollIntoView({{ block: "center", behavior: "instant" }});
            const b = e.getBoundingClientRect(), x = b.x + b.width / 2, y = b.y + b.height / 2;
            const hit = document.elementFromPoint(x, y);
            return {{ x, y, hit: e === hit || e.contains(hit) || (hit?.contains(e) ?? false) }}; }})()""")
        if not box or not box["hit"]:
            raise AssertionError(f"{selector} cannot be clicked: {box}")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box["x"], y=box["y"], button="left", clickCount=1)

    def key(self, key, code=None, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, **({"text": text} if kind == "keyDown" and text else {}))

    def set(self, selector, value):
        """Chooses or types a value, and says so as the reader's doing would."""
        self.run(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(str(value))};
            for (const name of ["input", "change"]) e.dispatchEvent(new Event(name, {{ bubbles: true }})); }})()""")

    def picture(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
