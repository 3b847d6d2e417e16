/*
 * Calls every function of the C library that takes a path, for a device's files in sysfs, and prints its name.
 *
 *     paths DEVICE
 *
 * Functions are looked up by name: some have no declaration in today's headers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <fts.h>
#include <glob.h>
#include <linux/magic.h>
#include <spawn.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "check.h"

static void *find(const char *name)
{
	void *function = dlsym(RTLD_DEFAULT, name);
	if (!function)
		fprintf(stderr, "%s: %s\n", name, dlerror());
	CHECK(function != NULL);
	puts(name);
	errno = 0;
	return function;
}

/* Calls NAME, which has the parameters TYPES. */
#define CALL(result, name, types, ...) (((result(*) types)find(#name))(__VA_ARGS__))

#define WORKS(name, types, ...) CHECK(CALL(int, name, types, __VA_ARGS__) == 0)
#define OPENS(name, types, ...)                                                                                        \
	do {                                                                                                           \
		int file_ = CALL(int, name, types, __VA_ARGS__);                                                       \
		CHECK(file_ >= 0);                                                                                     \
		close(file_);                                                                                          \
	} while (0)
#define REFUSES(expected, name, types, ...)                                                                            \
	do {                                                                                                           \
		CHECK(CALL(int, name, types, __VA_ARGS__) == -1);                                                      \
		CHECK(errno == (expected));                                                                            \
	} while (0)

typedef const char *P;
typedef void *V;

static char link_[64], directory[96], file[96], missing[96], below_class[96], missing_below_class[96];
static int class, nothing, may_not;

static int visit(const char *path, const struct stat *status, int kind)
{
	(void)path, (void)status, (void)kind;
	return 7;
}

static void read_state(int state)
{
	char text[16] = "";
	CHECK(state >= 0 && read(state, text, sizeof text - 1) > 0 && strcmp(text, "4: ACTIVE\n") == 0);
	close(state);
}

static void opening(void)
{
	read_state(CALL(int, open, (P, int, ...), file, O_RDONLY));
	read_state(CALL(int, open64, (P, int, ...), file, O_RDONLY));
	read_state(CALL(int, __open, (P, int, ...), file, O_RDONLY));
	read_state(CALL(int, __open64, (P, int, ...), file, O_RDONLY));
	read_state(CALL(int, __open_2, (P, int), file, O_RDONLY));
	read_state(CALL(int, __open64_2, (P, int), file, O_RDONLY));
	read_state(CALL(int, openat, (int, P, int, ...), class, below_class, O_RDONLY));
	read_state(CALL(int, openat64, (int, P, int, ...), class, below_class, O_RDONLY));
	read_state(CALL(int, __openat_2, (int, P, int), class, below_class, O_RDONLY));
	read_state(CALL(int, __openat64_2, (int, P, int), class, below_class, O_RDONLY));
	/* Some sandboxes forbid it. */
	int tree = CALL(int, open_tree, (int, P, unsigned), class, below_class, 0);
	CHECK(tree >= 0 || errno == EPERM || errno == ENOSYS);
	CHECK(open(file, O_RDWR) == -1 && errno == EACCES);
	CHECK(open(file, O_RDONLY | O_TRUNC) == -1 && errno == EACCES);
	CHECK(open(missing, O_WRONLY | O_CREAT, 0600) == -1 && errno == EACCES);
	CHECK(open(missing, O_RDONLY) == -1 && errno == ENOENT);
	read_state(open(file, O_RDONLY | O_CREAT, 0600));
	CHECK(fopen(file, "w") == NULL && errno == EACCES);
	CHECK(fopen(missing, "a") == NULL && errno == EACCES);
	CHECK(fopen(file, "r+") == NULL && errno == EACCES);

	FILE *stream = CALL(V, fopen, (P, P), file, "r");
	CHECK(stream != NULL);
	CHECK(CALL(V, freopen, (P, P, V), file, "r", stream) == stream);
	CHECK(CALL(V, freopen64, (P, P, V), file, "r", stream) == stream);
	fclose(stream);
	CHECK(CALL(V, fopen64, (P, P), file, "r") != NULL);
	CHECK(CALL(V, _IO_fopen, (P, P), file, "r") != NULL);
	CHECK(CALL(V, opendir, (P), directory) != NULL);
}

static void walking(void)
{
	struct dirent **names;
	glob_t found;
	char *list[] = {"/", directory, NULL};
	CHECK(CALL(int, scandir, (P, V, V, V), directory, &names, NULL, NULL) > 2);
	CHECK(CALL(int, scandir64, (P, V, V, V), directory, &names, NULL, NULL) > 2);
	CHECK(CALL(int, scandirat, (int, P, V, V, V), class, "infiniband", &names, NULL, NULL) >= 3);
	CHECK(CALL(int, scandirat64, (int, P, V, V, V), class, "infiniband", &names, NULL, NULL) >= 3);
	WORKS(glob, (P, int, V, V), "/sys/class/infiniband/*/ports", 0, NULL, &found);
	WORKS(glob64, (P, int, V, V), "/sys/class/infiniband/*/ports", 0, NULL, &found);
	CHECK(CALL(int, ftw, (P, V, int), directory, visit, 4) == 7);
	CHECK(CALL(int, ftw64, (P, V, int), directory, visit, 4) == 7);
	CHECK(CALL(int, nftw, (P, V, int, int), directory, visit, 4, 0) == 7);
	CHECK(CALL(int, nftw64, (P, V, int, int), directory, visit, 4, 0) == 7);
	/* fts64_open is the same where long has 64 bits. */
	for (int i = 0; i < 2; i++) {
		FTS *walk = i ? CALL(V, fts_open, (V, int, V), list, FTS_COMFOLLOW | FTS_NOCHDIR, NULL)
			      : CALL(V, fts64_open, (V, int, V), list, FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
		CHECK(walk != NULL && fts_children(walk, 0) != NULL);
		CHECK(fts_children(walk, 0)->fts_info == FTS_D && fts_children(walk, 0)->fts_link->fts_info == FTS_D);
		fts_close(walk);
	}
	WORKS(chdir, (P), directory);
	CHECK(access("ports/1/state", R_OK) == 0);
	CHECK(chdir("/") == 0);
}

static void describing(void)
{
	struct stat status;
	struct statx extended;
	struct statfs system = {0};
	struct statvfs vfs;
	WORKS(stat, (P, V), file, &status);
	CHECK(S_ISREG(status.st_mode));
	WORKS(stat64, (P, V), file, &status);
	WORKS(lstat, (P, V), link_, &status);
	CHECK(S_ISLNK(status.st_mode));
	WORKS(lstat64, (P, V), link_, &status);
	WORKS(fstatat, (int, P, V, int), class, below_class, &status, 0);
	WORKS(fstatat64, (int, P, V, int), class, below_class, &status, 0);
	WORKS(statx, (int, P, int, unsigned, V), class, below_class, 0, STATX_BASIC_STATS, &extended);
	WORKS(__xstat, (int, P, V), 1, file, &status);
	WORKS(__xstat64, (int, P, V), 1, file, &status);
	WORKS(__lxstat, (int, P, V), 1, link_, &status);
	CHECK(S_ISLNK(status.st_mode));
	WORKS(__lxstat64, (int, P, V), 1, link_, &status);
	WORKS(__fxstatat, (int, int, P, V, int), 1, class, below_class, &status, 0);
	WORKS(__fxstatat64, (int, int, P, V, int), 1, class, below_class, &status, 0);
	WORKS(statfs, (P, V), file, &system);
	CHECK(system.f_type == SYSFS_MAGIC);
	WORKS(statfs64, (P, V), file, &system);
	WORKS(__statfs, (P, V), file, &system);
	WORKS(statvfs, (P, V), file, &vfs);
	WORKS(statvfs64, (P, V), file, &vfs);
	REFUSES(ENOENT, statfs, (P, V), missing, &system);
	CHECK(CALL(long, pathconf, (P, int), file, _PC_NAME_MAX) == 255);
	WORKS(access, (P, int), file, R_OK);
	WORKS(faccessat, (int, P, int, int), class, below_class, R_OK, 0);
	WORKS(euidaccess, (P, int), file, R_OK);
	WORKS(eaccess, (P, int), file, R_OK);
	CHECK(CALL(int, ftok, (P, int), file, 'x') != -1);
}

static void naming(void)
{
	char text[4096];
	CHECK(CALL(ssize_t, readlink, (P, V, size_t), link_, text, sizeof text) > 0);
	CHECK(CALL(ssize_t, __readlink_chk, (P, V, size_t, size_t), link_, text, 64, sizeof text) > 0);
	P rest = link_ + strlen("/sys/class/");
	CHECK(CALL(ssize_t, readlinkat, (int, P, V, size_t), class, rest, text, sizeof text) > 0);
	CHECK(CALL(ssize_t, __readlinkat_chk, (int, P, V, size_t, size_t), class, rest, text, 64, sizeof text) > 0);
	CHECK(CALL(V, realpath, (P, V), file, text) == text);
	CHECK(CALL(V, __realpath_chk, (P, V, size_t), file, text, sizeof text) == text);
	CHECK(CALL(V, canonicalize_file_name, (P), file) != NULL);
}

static void no_attribute(ssize_t result)
{
	CHECK(result == -1 && (errno == ENODATA || errno == EOPNOTSUPP));
}

static void attributes(void)
{
	char text[256];
	no_attribute(CALL(ssize_t, getxattr, (P, P, V, size_t), file, "user.none", text, sizeof text));
	no_attribute(CALL(ssize_t, lgetxattr, (P, P, V, size_t), link_, "security.none", text, sizeof text));
	CHECK(CALL(ssize_t, listxattr, (P, V, size_t), file, text, sizeof text) >= 0 || errno == EOPNOTSUPP);
	CHECK(CALL(ssize_t, llistxattr, (P, V, size_t), link_, text, sizeof text) >= 0 || errno == EOPNOTSUPP);
}

static void watching(void)
{
	int watches = inotify_init1(IN_CLOEXEC);
	CHECK(CALL(int, inotify_add_watch, (int, P, uint32_t), watches, file, IN_OPEN) > 0);
	/* Only root may have these, and few file systems have handles. */
	int marks = fanotify_init(FAN_CLASS_NOTIF, O_RDONLY);
	int marked = CALL(int, fanotify_mark, (int, unsigned, uint64_t, int, P), marks, FAN_MARK_ADD, FAN_OPEN, class,
			  below_class);
	CHECK(marked == 0 || (marks < 0 && errno == EBADF));
	struct {
		struct file_handle head;
		char bytes[MAX_HANDLE_SZ];
	} handle = {.head.handle_bytes = MAX_HANDLE_SZ};
	int mount;
	CHECK(CALL(int, name_to_handle_at, (int, P, V, V, int), class, below_class, &handle, &mount, 0) == 0 ||
	      errno == EOPNOTSUPP || errno == EPERM);
}

static void spawning(void)
{
	char *argv[] = {"/bin/sh", "-c", "read -r state && test \"$state\" = '4: ACTIVE' && test -d ports", NULL};
	posix_spawn_file_actions_t actions;
	pid_t child;
	int status;
	posix_spawn_file_actions_init(&actions);
	WORKS(posix_spawn_file_actions_addopen, (V, int, P, int, mode_t), &actions, 0, file, O_RDONLY, 0);
	WORKS(posix_spawn_file_actions_addchdir_np, (V, P), &actions, directory);
	CHECK(posix_spawn(&child, argv[0], &actions, NULL, argv, NULL) == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void making(void)
{
	int exists = EEXIST;
	dev_t device = 0;
	REFUSES(may_not, mkdir, (P, mode_t), missing, 0700);
	CHECK(mkdir(directory, 0700) == -1 && errno == exists);
	REFUSES(exists, mkdirat, (int, P, mode_t), class, below_class, 0700);
	REFUSES(may_not, mknod, (P, mode_t, dev_t), missing, S_IFREG | 0600, 0);
	REFUSES(may_not, mknodat, (int, P, mode_t, dev_t), class, missing_below_class, S_IFREG | 0600, 0);
	REFUSES(may_not, __xmknod, (int, P, mode_t, V), 0, missing, S_IFREG | 0600, &device);
	REFUSES(may_not, __xmknodat, (int, int, P, mode_t, V), 0, class, missing_below_class, S_IFREG | 0600, &device);
	REFUSES(may_not, mkfifo, (P, mode_t), missing, 0600);
	REFUSES(may_not, mkfifoat, (int, P, mode_t), class, missing_below_class, 0600);
	REFUSES(may_not, symlink, (P, P), "/etc", missing);
	REFUSES(may_not, symlinkat, (P, int, P), "/etc", class, missing_below_class);
	char name[128];
	snprintf(name, sizeof name, "%s/XXXXXX", directory);
	CHECK(CALL(V, mkdtemp, (P), name) == NULL && errno == may_not);
	REFUSES(may_not, mkstemp, (P), name);
	REFUSES(may_not, mkstemp64, (P), name);
	REFUSES(may_not, mkstemps, (P, int), name, 0);
	REFUSES(may_not, mkstemps64, (P, int), name, 0);
	REFUSES(may_not, mkostemp, (P, int), name, 0);
	REFUSES(may_not, mkostemp64, (P, int), name, 0);
	REFUSES(may_not, mkostemps, (P, int, int), name, 0, 0);
	REFUSES(may_not, mkostemps64, (P, int, int), name, 0, 0);
}

static void removing(void)
{
	REFUSES(may_not, unlink, (P), file);
	REFUSES(nothing, unlink, (P), missing);
	REFUSES(may_not, unlinkat, (int, P, int), class, below_class, 0);
	REFUSES(may_not, rmdir, (P), directory);
	REFUSES(may_not, remove, (P), link_);
	REFUSES(may_not, rename, (P, P), file, missing);
	REFUSES(nothing, rename, (P, P), missing, "/tmp/softrnic-none");
	REFUSES(EXDEV, rename, (P, P), file, "/tmp/softrnic-none");
	REFUSES(EXDEV, rename, (P, P), "/etc/hostname", missing);
	REFUSES(may_not, renameat, (int, P, int, P), class, below_class, AT_FDCWD, missing);
	REFUSES(may_not, renameat2, (int, P, int, P, unsigned), class, below_class, AT_FDCWD, missing, 0);
	REFUSES(may_not, link, (P, P), file, missing);
	REFUSES(may_not, linkat, (int, P, int, P, int), class, below_class, class, missing_below_class, 0);
}

static void changing(void)
{
	int no = EPERM;
	uid_t user = getuid();
	struct stat before, after;
	CHECK(stat(file, &before) == 0);
	REFUSES(no, chmod, (P, mode_t), file, 0777);
	REFUSES(nothing, chmod, (P, mode_t), missing, 0777);
	REFUSES(no, lchmod, (P, mode_t), file, 0777);
	REFUSES(no, fchmodat, (int, P, mode_t, int), class, below_class, 0777, 0);
	REFUSES(no, chown, (P, uid_t, gid_t), file, user, -1);
	REFUSES(no, lchown, (P, uid_t, gid_t), file, user, -1);
	REFUSES(no, fchownat, (int, P, uid_t, gid_t, int), class, below_class, user, -1, 0);
	REFUSES(no, utime, (P, V), file, NULL);
	REFUSES(no, utimes, (P, V), file, NULL);
	REFUSES(no, lutimes, (P, V), file, NULL);
	REFUSES(no, futimesat, (int, P, V), class, below_class, NULL);
	REFUSES(no, utimensat, (int, P, V, int), class, below_class, NULL, 0);
	REFUSES(no, setxattr, (P, P, V, size_t, int), file, "user.x", "", 1, 0);
	REFUSES(no, lsetxattr, (P, P, V, size_t, int), file, "user.x", "", 1, 0);
	REFUSES(no, removexattr, (P, P), file, "user.x");
	REFUSES(no, lremovexattr, (P, P), file, "user.x");
	REFUSES(EACCES, truncate, (P, off_t), file, 0);
	REFUSES(EACCES, truncate64, (P, off_t), file, 0);
	REFUSES(EACCES, creat, (P, mode_t), file, 0600);
	REFUSES(EACCES, creat64, (P, mode_t), file, 0600);
	CHECK(stat(file, &after) == 0 && before.st_mode == after.st_mode && before.st_size == after.st_size);
	CHECK(before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
	/* The device, which is not to be mistaken for the one that stands for it. */
	CHECK(unlink("/dev/infiniband/uverbs0") == -1 && errno == may_not);
	CHECK(chmod("/dev/infiniband/uverbs0", 0666) == -1 && errno == EPERM);
}

static void loading(void)
{
	const char *path = getenv("DISTRIBUTION");
	void *library = CALL(V, dlopen, (P, int), path, RTLD_NOW);
	CHECK(library != NULL && dlvsym(library, "softrnic_cm_open", "SOFTRNIC_1.0") != NULL);
	library = CALL(V, dlmopen, (Lmid_t, P, int), LM_ID_BASE, path, RTLD_NOW);
	CHECK(library != NULL && dlvsym(library, "softrnic_cm_open", "SOFTRNIC_1.0") != NULL);
	CHECK(dlopen("/no/such/libibverbs.so.1", RTLD_NOW) == NULL);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	snprintf(link_, sizeof link_, "/sys/class/infiniband/%s", argv[1]);
	snprintf(directory, sizeof directory, "%s/", link_);
	snprintf(file, sizeof file, "%s/ports/1/state", link_);
	snprintf(missing, sizeof missing, "%s/none", link_);
	snprintf(below_class, sizeof below_class, "infiniband/%s/ports/1/state", argv[1]);
	snprintf(missing_below_class, sizeof missing_below_class, "infiniband/%s/none", argv[1]);
	class = open("/sys/class", O_RDONLY | O_DIRECTORY);
	nothing = ENOENT;
	may_not = geteuid() == 0 ? EPERM : EACCES;
	opening();
	walking();
	describing();
	naming();
	attributes();
	watching();
	spawning();
	making();
	removing();
	changing();
	loading();
	return 0;
}
