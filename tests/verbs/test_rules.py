"""What hardware and kernel taught programs to expect: `c/rules.c`, a rule at a time."""

import re

from harness import VerbsTest


class Rules(VerbsTest):
    def rule(self, name, **environment):
        program = self.compile("rules.c", "-libverbs")
        out = self.run_ok([program, name], **environment)
        self.assertIn("as it should be", out)
        return out

    def test_a_receive_from_an_srq_is_placed_in_the_domain_of_the_srq(self):
        self.rule("srq_domain")

    def test_of_the_key_that_a_bind_asks_for_the_low_byte_counts(self):
        self.rule("window_key")

    def test_a_region_below_a_bound_window_is_busy(self):
        self.rule("region_below_a_window")

    def test_a_datagram_longer_than_the_receive_takes_none(self):
        self.rule("datagram_too_long")

    def test_regions_of_no_bytes_serve_operations_on_none(self):
        self.rule("no_bytes")

    def test_no_more_address_handles_than_are_advertised(self):
        self.rule("handles")

    def test_a_probe_for_dmabuf_support_learns_that_there_is_some(self):
        self.rule("dmabuf_probes")

    def test_the_flags_of_completions_and_the_room_for_the_network_header(self):
        self.rule("flags")

    def test_a_write_with_immediate_data_and_a_bad_key_ends_its_receive(self):
        self.rule("immediate_with_bad_key")

    def test_the_parts_of_an_address_without_meaning_come_back(self):
        self.rule("address_as_given")

    def test_a_type_2_window_is_invalidated_through_its_own_qp_alone(self):
        self.rule("window_of_another_qp")

    def test_of_two_bad_keys_the_local_one_is_told(self):
        self.rule("both_keys_wrong")

    def test_what_can_never_be_done_is_taken_and_fails(self):
        self.rule("impossible_requests")

    def test_a_failed_reregistration_leaves_the_region_as_it_was(self):
        self.rule("failed_reregistration")

    def test_a_cq_without_a_channel_can_be_asked_for_notification(self):
        self.rule("notification_without_channel")

    def test_whoever_changes_a_qp_in_vain_is_told_why(self):
        out = self.rule("refused_changes", SOFTRNIC_LOG="debug")
        refusals = re.split(r"(?m)^refused \d+$", out)
        self.assertEqual(len(refusals) - 1, int(re.search(r"(\d+) refusals", out)[1]))
        silent = [number for number, said in enumerate(refusals[:-1]) if "refused" not in said]
        self.assertEqual(silent, [], out)

    def test_a_verb_that_is_refused_is_named_with_its_arguments_and_the_reason(self):
        out = self.rule("refused_verbs", SOFTRNIC_LOG="debug")
        for said in (
                r"ibv_attach_mcast\{qp=0x\w+ gid=0x\w+ lid=7\}: .*the group is 0000:0000:0000:0000:0000:ffff:0a01:0203",
                r"ibv_attach_mcast\{.*refused: Invalid argument",
                r"ibv_create_cq\{context=0x\w+ cqe=-5 .*refused: Invalid argument",
                r"ibv_alloc_mw\{pd=0x\w+ mw_type=99\}: .*refused: Invalid argument",
                "1000 bytes are inline, of at most 64", "send_flags are 0x100000, of which 0x100000 are unknown",
                "opcode is 77", "num_sge is 1000, of at most", "ibv_post_send: the work request is refused wr_id=41",
                "num_sge is -1", "ibv_post_recv: the work request is refused wr_id=42"):
            self.assertRegex(out, said)
