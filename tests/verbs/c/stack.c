/*
 * Prints how many bytes of stack functions take that are given a path, by the library that is found first and by the C
 * library itself.
 *
 *     stack
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <ucontext.h>

#include "check.h"

enum { SIZE = 256 << 10, PAINT = 0xa5 };

static char stack[SIZE], text[4096], other[256];
static struct stat status;
static struct statfs file_system;
static const char *path;
static const char *name;
static void *function;
static ucontext_t here, there;

#define IS(call) (strcmp(name, #call) == 0)
#define AS(call) ((__typeof__(&call))function)

static void call(void)
{
	if (IS(open))
		close(AS(open)(path, O_RDONLY));
	else if (IS(openat))
		close(AS(openat)(AT_FDCWD, path, O_RDONLY));
	else if (IS(stat))
		AS(stat)(path, &status);
	else if (IS(fstatat))
		AS(fstatat)(AT_FDCWD, path, &status, 0);
	else if (IS(access))
		AS(access)(path, R_OK);
	else if (IS(readlink))
		AS(readlink)(path, text, sizeof text);
	else if (IS(chdir))
		AS(chdir)(path);
	else if (IS(statfs))
		AS(statfs)(path, &file_system);
	else if (IS(lgetxattr))
		AS(lgetxattr)(path, "user.none", text, sizeof text);
	else if (IS(unlink))
		AS(unlink)(path);
	else if (IS(rename))
		AS(rename)(path, other);
	else if (IS(chmod))
		AS(chmod)(path, 0600);
	else
		CHECK(!"a function");
}

/* The bytes that a call takes of a stack of its own. */
static long used(void)
{
	memset(stack, PAINT, SIZE);
	CHECK(getcontext(&there) == 0);
	there.uc_stack = (stack_t){.ss_sp = stack, .ss_size = SIZE};
	there.uc_link = &here;
	makecontext(&there, call, 0);
	CHECK(swapcontext(&here, &there) == 0);
	long rest = 0;
	while (rest < SIZE && (unsigned char)stack[rest] == PAINT)
		rest++;
	return SIZE - rest;
}

int main(void)
{
	static const char *const functions[] = {"open",	 "openat", "stat",   "fstatat",	  "access", "readlink",
						"chdir", "statfs", "unlink", "lgetxattr", "rename", "chmod"};
	void *libc = dlopen("libc.so.6", RTLD_NOW);
	CHECK(libc != NULL);
	/* Long, so that a copy of it would show. */
	memset(other, 'x', sizeof other - 1);
	memcpy(other, "/no/such/", 9);
	path = other;
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		name = functions[i];
		function = dlsym(RTLD_DEFAULT, name);
		long first = used();
		function = dlsym(libc, name);
		used();
		printf("%s %ld %ld\n", name, first, used());
	}
	return 0;
}
