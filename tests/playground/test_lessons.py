"""Each lesson of the playground, solved through the page's own controls. What a wrong answer gets is in each of them."""

import re
import sys
import unittest

from browser import Browser
from pages import PAGE


class Lessons(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def begin(self, lesson):
        self.browser.open(PAGE.as_uri())
        self.browser.set("#choice", lesson)
        self.assertEqual(self.result(), "", "nothing has been done yet")

    def tearDown(self):
        self.assertEqual(self.browser.errors, [])

    def post(self, side, op, length, check=(), **fields):
        form = f'.side[data-side="{side}"] .post'
        if check or fields:
            self.browser.run(f"document.querySelector('{form} details').open = true")
        for name, value in {"op": op, "len": length, **fields}.items():
            self.browser.set(f"{form} [name={name}]", value)
        for name in check:
            self.browser.click(f"{form} [name={name}]")
        self.browser.click(f"{form} > button")
        for name in check:
            self.browser.click(f"{form} [name={name}]")

    def step(self, count):
        for _ in range(count):
            self.browser.click("#step")

    def step_until(self, condition):
        for _ in range(60):
            if self.browser.run(condition):
                return
            self.browser.click("#step")
        self.fail(f"{condition}: not after 60 steps")

    def do_to(self, packet, does):
        self.browser.click(f'#wire [data-packet="{packet}"]')
        self.browser.click(f'[data-does="{does}"]')

    def result(self):
        return self.browser.run("document.querySelector('#lesson .result').textContent")

    def solved(self):
        return self.browser.run("document.querySelector('#lesson .result').className") == "result solved"

    def answer(self, right, wrong):
        """The question comes when it has been done, and only the right answer is accepted."""
        self.step_until("!document.querySelector('#lesson form').hidden")
        shown = self.browser.run("document.querySelector('#lesson form').innerText")
        self.assertTrue(shown.startswith("Done. Now the question:"), shown)
        self.assertEqual(self.result(), "", "nothing has been answered yet")
        for given, good in [(wrong, False), ("", False), (right, True)]:
            self.browser.set("#lesson [name=answer]", given)
            self.browser.click("#lesson form button")
            self.assertEqual(self.solved(), good, (given, self.result()))

    def test_1_send(self):
        self.begin("1-send")
        self.post(1, "recv", 4096)
        self.post(0, "send", 2500)
        self.answer(right=102, wrong=100)

    def test_2_write(self):
        self.begin("2-write")
        self.post(0, "write", 600)
        self.step(4)
        self.assertFalse(self.solved(), "B has been told nothing")
        self.post(1, "recv", 0)
        self.post(0, "write", 600, imm=7)
        self.step_until("document.querySelector('#lesson .solved') !== null")

    def test_3_read(self):
        self.begin("3-read")
        self.post(0, "read", 3000)
        self.answer(right=3, wrong=1)

    def test_4_atomic(self):
        self.begin("4-atomic")
        self.post(0, "fetch_add", 8, operand=1)
        self.step(1)
        self.do_to(1, "drop")
        self.answer(right=42, wrong=43)

    def test_4_atomic_without_a_loss_is_not_the_lesson(self):
        self.begin("4-atomic")
        self.post(0, "fetch_add", 8)
        self.step(3)
        self.assertTrue(self.browser.run("document.querySelector('#lesson form').hidden"))

    def test_5_loss(self):
        self.begin("5-loss")
        self.post(1, "recv", 4096)
        self.post(0, "send", 2500)
        self.step(2)
        self.do_to(2, "drop")
        self.step_until("!document.querySelector('#lesson form').hidden")
        took = self.browser.run("(playground.state.packets.find((p) => p.id > 2 && p.psn === 102).sent) / 1e6")
        self.assertGreater(took, 67, "4.096 µs × 2^14 at least")
        self.answer(right=f"{took:.1f}", wrong=1)

    def test_5_loss_of_another_packet_is_not_the_lesson(self):
        self.begin("5-loss")
        self.post(1, "recv", 4096)
        self.post(0, "send", 2500)
        self.step(1)
        self.do_to(1, "drop")
        self.step(10)
        self.assertTrue(self.browser.run("document.querySelector('#lesson form').hidden"))

    def test_6_rnr(self):
        self.begin("6-rnr")
        self.post(0, "send", 100)
        self.step(2)
        self.post(1, "recv", 4096)
        self.answer(right="0.64", wrong="0.1")

    def test_7_error(self):
        self.begin("7-error")
        self.post(0, "write", 200, check=["wrong_key"])
        self.post(0, "write", 100)
        self.step_until("document.querySelector('#lesson .solved') !== null")
        self.assertIn("ERR", self.browser.run("""document.querySelector('.side[data-side="0"] .state').innerText"""))

    def test_8_congestion(self):
        self.begin("8-congestion")
        self.post(0, "write", 4096)
        self.do_to(0, "mark")
        self.step_until("!document.querySelector('#lesson form').hidden")
        shown = self.browser.run("""document.querySelector('.side[data-side="0"] .state').innerText.match(/([\\d.]+) Gbit/)[1]""")
        self.assertLess(float(shown), 10)
        self.answer(right=shown, wrong=10)

    def test_9_windows(self):
        self.begin("9-windows")
        self.post(1, "bind", 256, local=4096)
        self.post(0, "write", 200, check=["window"])
        self.step_until(self.completed(0, "RdmaWrite, Success"))
        self.post(1, "recv", 64)
        self.post(0, "send_invalidate", 0)
        self.step_until(self.completed(0, "Send, Success"))
        self.assertTrue(self.browser.run("document.querySelector('#lesson form').hidden"), "whether it has gone has not been tried")
        self.post(0, "write", 200, check=["window"])
        self.step_until("!document.querySelector('#lesson form').hidden")
        row = self.browser.run("[...document.querySelectorAll('#ladder .row')].find((row) => /Invalidate/.test(row.innerText)).dataset.packet")
        self.browser.click(f'#ladder [data-packet="{row}"]')
        key = self.browser.run("""[...document.querySelectorAll("#packet .layer")].find((layer) => layer.querySelector("h3").textContent === "ieth")
            .querySelector(".field").lastChild.textContent""")
        self.answer(right=key, wrong="0x1")

    def test_10_dcqcn(self):
        self.begin("10-dcqcn")
        for side in (0, 2):
            self.post(side, "write", 8192, times=40)
        self.browser.set("#speed", 1_000_000_000)
        self.browser.click("#play")
        self.browser.until("!document.querySelector('#lesson form').hidden", seconds=60)
        self.browser.run("document.getElementById('play').textContent === 'Pause' && document.getElementById('play').click()")
        at = self.browser.run("""playground.state.events.filter((event) => event.side === 0 && event.what === "rate").map((event) => event.at)""")
        self.assertIn("Queue of the switch to B", self.words())
        self.answer(right=round((at[-1] - at[-2]) / 1000), wrong=55)

    def test_11_rdma_cm(self):
        self.begin("11-rdma-cm")
        self.browser.click('.side[data-side="0"] .connect')
        self.step(1)
        self.do_to(1, "drop")
        established = """["0", "1"].every((side) => document.querySelector(`.side[data-side="${side}"] .state`).innerText.includes("established"))"""
        self.step_until(established)
        self.browser.click('.side[data-side="1"] .disconnect')
        self.step_until("!document.querySelector('#lesson form').hidden")
        sent = self.browser.run("playground.state.packets.filter((packet) => packet.opcode === 'REP').map((packet) => packet.sent)")
        self.answer(right=round((sent[1] - sent[0]) / 1e6, 1), wrong=4000)

    def post_at_both(self, times):
        for side in (0, 2):
            self.post(side, "write", 8192, times=times)

    def play_until(self, condition):
        """At the greatest speed, and then it stands still."""
        self.browser.set("#speed", 1_000_000_000)
        self.browser.click("#play")
        self.browser.until(f"({condition}) || document.getElementById('play').textContent === 'Play'", seconds=60)
        self.assertTrue(self.browser.run(condition), f"{condition}: nothing more happens")
        self.browser.run("document.getElementById('play').textContent === 'Pause' && document.getElementById('play').click()")

    def words(self):
        return self.browser.run("document.querySelector('#network-view .plots').innerText")

    ALL = "playground.state.events.filter((event) => event.what === 'completion' && /Success/.test(event.text)).length === {}"

    def test_12_incast(self):
        self.begin("12-incast")
        self.post_at_both(20)
        self.play_until(self.ALL.format(40))
        lost = self.browser.run("playground.state.packets.filter((packet) => packet.fate === 'lost').length")
        self.assertIn(f"{lost} packets lost at the switch", self.words())
        self.assertGreater(lost, 0)
        self.assertTrue(self.browser.run("document.querySelector('#lesson form').hidden"), "PFC has not been tried")
        self.browser.click("#pfc")
        self.post_at_both(20)
        self.play_until(self.ALL.format(40))
        self.assertNotIn("lost", self.words())
        begin, end = map(float, re.search(r"A must not send to the switch: .*first from ([\d.]+) µs to ([\d.]+) µs", self.words()).groups())
        self.answer(right=round(end - begin, 1), wrong=1000)

    def test_12_incast_with_pfc_from_the_beginning_is_not_the_lesson(self):
        self.begin("12-incast")
        self.browser.click("#pfc")
        self.post_at_both(20)
        self.play_until(self.ALL.format(40))
        self.assertTrue(self.browser.run("document.querySelector('#lesson form').hidden"))

    def test_13_ecmp(self):
        self.begin("13-ecmp")
        took = []
        for port in (49152, 49153):
            self.browser.set("#sport", port)
            self.post_at_both(20)
            self.play_until(self.ALL.format(40))
            took.append(self.browser.run("playground.state.events.findLast((event) => event.what === 'completion').at"))
            self.assertEqual("Queue of leaf 1 to spine" in self.words(), port == 49152, self.words())
        self.assertGreater(took[0], 1.8 * took[1])
        self.answer(right=round(took[0] / took[1], 2), wrong=1)

    def test_14_link(self):
        self.begin("14-link")
        self.post_at_both(40)
        self.step(30)
        self.browser.click("#network-view [data-link='3']")
        self.assertIn("Repair leaf 1 – spine 1", self.browser.run("document.querySelector('#network-view .links').innerText"))
        failed = self.browser.run("playground.state.view.now")
        self.play_until(self.ALL.format(80))
        last = self.browser.run("playground.state.events.findLast((event) => /is lost at/.test(event.text)).at")
        self.assertGreater(last - failed, 90_000)
        self.assertLessEqual(last - failed, 100_000, "then the routes have followed")
        self.assertIn("Queue of leaf 1 to spine 2", self.words())
        self.answer(right=round((last - failed) / 1000), wrong=67_000)

    def test_15_recovery(self):
        self.begin("15-recovery")
        again = []
        for number in (1, 2):
            sent = self.browser.run("playground.state.packets.length")
            self.post(0, "write", 8192)
            self.do_to(sent + 1, "drop")
            self.step_until(f"playground.state.events.filter((event) => /RdmaWrite, Success/.test(event.text)).length === {number}")
            data = "playground.state.packets.filter((packet) => packet.from === 0 && !packet.message && packet.id >= %d)" % sent
            again.append(self.browser.run(f"{data}.length") - 8)
        self.assertEqual(again, [7, 1])
        shown = self.browser.run("playground.state.packets.map((packet) => packet.opcode)")
        for opcode in ("SoftRNIC question", "SoftRNIC answer", "SoftRNIC Selective Acknowledge"):
            self.assertIn(opcode, shown)
        self.answer(right=6, wrong=7)

    def completed(self, side, what):
        return f"""document.querySelector('.side[data-side="{side}"] .completions').innerText.includes("{what}")"""

    def test_an_address_opens_a_lesson(self):
        self.begin("6-rnr")
        self.post(0, "send", 100)
        address = self.browser.run("location.href")
        self.browser.open(address)
        self.assertEqual(self.browser.run("document.querySelector('#lesson h2').textContent"), "A receiver that is not ready")
        self.assertEqual(self.browser.run("document.getElementById('cursor').textContent"), "1 of 1")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv)
