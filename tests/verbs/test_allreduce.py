"""A ring all-reduce over verbs that are found as NCCL finds them."""

from harness import VerbsTest


class AllReduce(VerbsTest):
    def test_several_queue_pairs_to_each_neighbour(self):
        program = self.compile("allreduce.c", "-ldl")
        for ranks, qps in ((2, 4), (4, 4), (3, 16), (8, 2)):
            self.assertIn(f"all right with {ranks} ranks", self.run_ok([program, str(ranks), str(qps)]))
