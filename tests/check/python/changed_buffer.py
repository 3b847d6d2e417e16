"""changed-buffer: the buffer of a SEND is written again before its completion."""

from pyverbs.enums import IBV_WR_SEND
from pyverbs.mr import MR

from pair import ALL, connect, CORRECT, end, make, receive, request, SIZE


here, there = make()
mine, theirs = MR(here.pd, SIZE, ALL), MR(there.pd, SIZE, ALL)
connect(here, there)
there.qp.post_recv(receive(theirs))
mine.write(b"before", 6)
here.qp.post_send(request(IBV_WR_SEND, mine))  # posted
if not CORRECT:
    mine.write(b"after!", 6)
here.poll()
mine.write(b"after!", 6)
end(here, there, mine, theirs)
