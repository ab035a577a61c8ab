"""What a program in the sandbox may ask of the kernel: what one Python process needs to compute, and nothing else.

No process or thread can be begun, no socket opened, nothing mounted, traced or unshared, no memory taken that is not counted.
What is not listed fails with EPERM; system calls of another architecture end the process.
"""

import errno
import os
import re
import termios

from drag_ray.errors import ConfigError

_ALLOWED = re.findall(
    r"\w+",
    """
    read pread64 readv preadv write writev lseek open openat close close_range fcntl dup dup2 dup3 pipe pipe2
    stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents64 getcwd
    poll ppoll select pselect6
    mmap munmap mprotect mremap madvise brk
    rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack alarm setitimer getitimer restart_syscall tgkill
    arch_prctl set_tid_address set_robust_list get_robust_list rseq futex sched_yield sched_getaffinity
    getpid gettid getuid geteuid getgid getegid getresuid getresgid
    getrandom clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times getrusage getrlimit setrlimit
    uname execve wait4 exit exit_group
""",
)
_TERMINAL_REQUESTS = (termios.TCGETS, termios.FIOCLEX, termios.FIONCLEX, termios.FIONBIO, termios.TIOCGWINSZ)
"""Of ioctl: whether something is a terminal, and flags of descriptors. Nothing that puts letters into one."""


def write_filter() -> int:
    """The filter as a file in memory, in the form that the kernel takes; the caller closes it.

    Raises:
        ConfigError: libseccomp is not installed.
    """
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError, TypeError, AttributeError) as error:  # as it says that there is no library
        raise ConfigError(f"libseccomp cannot be loaded ({error}). Install it (Debian: libseccomp2).") from None

    rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    # The C library falls back to clone, which is refused, where clone3 is unknown.
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    for name in _ALLOWED:
        if pyseccomp.resolve_syscall(pyseccomp.system_arch(), name) >= 0:  # some are those of one architecture
            rules.add_rule(pyseccomp.ALLOW, name)
    for request in _TERMINAL_REQUESTS:
        rules.add_rule(pyseccomp.ALLOW, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, 0xFFFFFFFF, request))
    rules.add_rule(pyseccomp.ALLOW, "prlimit64", pyseccomp.Arg(0, pyseccomp.EQ, 0))  # of oneself
    descriptor = os.memfd_create("syscalls")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        rules.export_bpf(file)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
