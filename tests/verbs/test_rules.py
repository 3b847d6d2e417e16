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

    def test_a_write_with_immediate_data_and_a_bad_key_takes_no_receive(self):
        self.rule("immediate_with_bad_key")

    def test_a_type_2_window_is_invalidated_through_its_own_qp_alone(self):
        self.rule("window_of_another_qp")

    def test_of_two_bad_keys_the_local_one_is_told(self):
        self.rule("both_keys_wrong")

    def test_what_can_never_be_done_is_refused_when_it_is_posted(self):
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
