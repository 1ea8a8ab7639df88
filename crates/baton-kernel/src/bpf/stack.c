// The program of `direct.c` in the network stack: of type BPF_PROG_TYPE_SCHED_CLS, at the ingress of interfaces (TCX).
//
// There a VLAN's tag is beside the frame, and packets of a connection that came one after the other may be one large one, which is cut
// again when it leaves. A program of type XDP in the stack sees no such tag and cannot send so large a packet by another interface.

#define IN_STACK
#include "direct.c"
