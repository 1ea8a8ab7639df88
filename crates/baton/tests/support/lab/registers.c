/* For User-mode Linux on processors whose registers take more room than it sets aside (AMX: 11008 bytes).
 *
 * It hands the kernel the first part of a process's extended registers, as many bytes as it knows of. Kernels refuse that with
 * EFAULT: they want all of them or none. So a call that was refused is made again with the rest as it is at this moment, which
 * is as good as what User-mode Linux means: it has never saved the rest, and no program in it may use it.
 *
 * Loaded by LD_PRELOAD; it knows ptrace(2) and nothing else, and on other processors it changes nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

static long (*next)(int, pid_t, void *, void *);

/* Not on the stack: User-mode Linux's kernel stacks are small. It is one thread. */
static _Alignas(64) unsigned char all[65536];

__attribute__((constructor)) static void find_next(void) { next = dlsym(RTLD_NEXT, "ptrace"); }

long ptrace(enum __ptrace_request request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *which = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);

    long done = next(request, pid, which, data);
    if (done == 0 || errno != EFAULT || request != PTRACE_SETREGSET || (long)which != NT_X86_XSTATE)
        return done;
    struct iovec *part = data, whole = {all, sizeof all};
    if (next(PTRACE_GETREGSET, pid, which, &whole) != 0)
        return -1;
    if (part->iov_len >= whole.iov_len) {
        errno = EFAULT;
        return -1;
    }
    memcpy(all, part->iov_base, part->iov_len);
    return next(PTRACE_SETREGSET, pid, which, &whole);
}
