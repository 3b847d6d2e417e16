"""The functions of the C library that take a path: docs/interposed-calls.md lists them, and a program calls each."""

import re
import subprocess

from harness import DISTRIBUTION, INTERPOSER, ROOT, VerbsTest

# Functions that the library replaces because of a descriptor, and what a sanitizer's runtime asks for.
NO_PATH = {
    "write", "close", "dup2", "dup3", "close_range", "closefrom", "fstat", "fstat64", "__fxstat", "__fxstat64",
    "socket", "bind", "setsockopt", "send", "sendto", "sendmsg", "writev",
    "__asan_default_options", "softrnic_interpose_describe_by",
    # For slow motion.
    "clock_gettime", "gettimeofday", "time", "clock_nanosleep", "pthread_cond_timedwait", "pthread_cond_clockwait",
    "pthread_mutex_timedlock", "pthread_mutex_clocklock", "sem_timedwait", "sem_clockwait", "sigaction", "signal",
    "sigprocmask", "pthread_sigmask", "execve", "execv", "execvp", "execvpe", "fexecve", "posix_spawn", "posix_spawnp",
    "system", "popen", "softrnic_interpose_slow_down",
}  # fmt: skip

# Words in the names of functions that take a path.
WORDS = re.compile(
    r"(?<![pf])open|(?<!f)stat(?!e|us|ist)|access|link|path(?!conf$)|pathconf|dir|(?<!f)(get|set|list|remove)xattr"
    r"|(?<!f)ch(mod|own|root)|mount|(?<!f)trunc|utime|handle_at|glob|ft[sw]|mk(nod|fifo|.*temp)|^rename|^remove|^exec|swapo"
    r"|quota|acct|uselib|pivot|mntent|utmp|tempnam|^creat|ftok|watch|_mark$"
)
# Names with such a word, of functions that take none.
OTHERS = set("""
    _IO_fdopen _IO_file_open _IO_file_stat _IO_link_in _IO_proc_open _IO_str_init_static _IO_un_link __endmntent
    __getmntent_r __mq_open_2 addmntent closedir create_module dirfd dirname endmntent fchdir fdopen fdopendir
    fmemopen fpathconf fsmount fsopen fts64_children fts64_close fts64_read fts64_set fts_children fts_close
    fts_read fts_set futimens futimes get_current_dir_name getdirentries getdirentries64 getmntent getmntent_r
    getutmp getutmpx glob_pattern_p globfree globfree64 iconv_open inotify_rm_watch malloc_stats mq_open mq_unlink
    open_by_handle_at open_memstream open_wmemstream openlog openpty pidfd_open posix_openpt
    posix_spawn_file_actions_addfchdir_np readdir readdir64 readdir64_r readdir_r rewinddir seekdir sem_open
    sem_unlink shm_open shm_unlink telldir ustat
""".split())


def exports(library):
    table = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?m)^\S+ [TWi] (\w+)(?!.*GLIBC_PRIVATE)", table))


class Paths(VerbsTest):
    def test_each_call_is_answered_as_the_kernel_would(self):
        program = self.compile("paths.c", "-libverbs", "-ldl")
        done = self.run_ok([program, "softrnic0"], DISTRIBUTION=DISTRIBUTION).split()
        self.assertEqual(set(done), exports(INTERPOSER) - NO_PATH)

    def test_the_page_lists_them_all(self):
        page = (ROOT / "docs/interposed-calls.md").read_text()
        caught, alone = ({name for row in re.findall(r"(?m)^\| [a-z].*", part) for name in re.findall(r"`(\w+)`", row)}
                         for part in page.split("## Functions that are not replaced"))
        self.assertEqual(caught, exports(INTERPOSER) - NO_PATH)
        library = "/lib/x86_64-linux-gnu/libc.so.6"
        named = {name for name in exports(library) if WORDS.search(name)}
        self.assertEqual(named - caught - alone - NO_PATH - OTHERS, set())
        self.assertEqual((caught | alone) - exports(library), set())

    def test_ls_shows_devices_and_no_errors(self):
        out = self.run_ok(["ls", "-l", "/sys/class/infiniband/"])
        self.assertIn("softrnic0 ->", out)
        self.assertNotIn("ls:", out)

    def test_a_path_outside_our_directories_takes_next_to_no_stack(self):
        # The first call, too: it may be that of a signal handler. The program's own symbols are bound before.
        program = self.compile("stack.c", "-ldl", "-Wl,-z,now")
        for name, first, alone in re.findall(r"(\w+) (\d+) (\d+)", self.run_ok([program])):
            self.assertLess(int(first) - int(alone), 256, name)
