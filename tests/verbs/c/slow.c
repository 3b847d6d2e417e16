// A program on a fabric that is slowed 100 times: what it sees of time agrees, and everything else is as before.

#include <infiniband/verbs.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static void expect(int is_so, const char *what)
{
	if (!is_so) {
		printf("wrong: %s\n", what);
		exit(1);
	}
}

static double seconds(struct timespec time)
{
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double wall(void)
{
	struct timespec time;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
	return seconds(time);
}

static double own(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return seconds(time);
}

struct passed {
	double wall, own, real, counter;
};

static struct passed pass(void)
{
	struct timespec real;
	struct passed passed = {.wall = -wall(), .own = -own(), .counter = -(double)__rdtsc()};
	clock_gettime(CLOCK_REALTIME, &real);
	passed.real = -seconds(real);
	usleep(200000);
	unsigned cpu;
	passed.wall += wall();
	passed.own += own();
	passed.counter += (double)__rdtscp(&cpu);
	clock_gettime(CLOCK_REALTIME, &real);
	passed.real += seconds(real);
	return passed;
}

static sigjmp_buf back;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
	siglongjmp(back, 1);
}

static void faults_are_the_programs(void)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, old;
	expect(sigaction(SIGSEGV, &action, NULL) == 0, "a handler is installed");
	expect(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_sigaction == on_fault, "it is the program's");
	if (!sigsetjmp(back, 1)) {
		*(volatile int *)8 = 1;
		expect(0, "a fault is a fault");
	}
	expect(__rdtsc() != 0, "the counter can be read with a handler");
}

static void *with_all_blocked(void *counter)
{
	sigset_t all;
	sigfillset(&all);
	expect(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0, "signals are blocked");
	*(uint64_t *)counter = __rdtsc();
	return NULL;
}

static void threads_read_it(void)
{
	pthread_t thread;
	uint64_t before = __rdtsc(), counter = 0;
	expect(pthread_create(&thread, NULL, with_all_blocked, &counter) == 0, "a thread starts");
	pthread_join(thread, NULL);
	expect(before <= counter && counter <= __rdtsc(), "threads have the same counter");
}

static void other_programs_run(void)
{
	char *words[] = {"true", NULL}, *environment[] = {NULL};
	int status;
	expect(system("true") == 0, "system");
	pid_t child = fork();
	if (child == 0) {
		execlp("true", "true", (char *)NULL);
		_exit(9);
	}
	expect(waitpid(child, &status, 0) == child && status == 0, "fork and execlp");
	child = vfork();
	if (child == 0) {
		execvp("true", words);
		_exit(9);
	}
	expect(waitpid(child, &status, 0) == child && status == 0, "vfork and execvp");
	expect(posix_spawnp(&child, "true", NULL, NULL, words, environment) == 0, "posix_spawnp");
	expect(waitpid(child, &status, 0) == child && status == 0, "what it has started");
	child = fork();
	if (child == 0) {
		own();
		_exit(__rdtsc() == 0);
	}
	expect(waitpid(child, &status, 0) == child && status == 0, "a child that stays");
}

static void waits_end(void)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t never = PTHREAD_COND_INITIALIZER;
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	double began = wall();
	pthread_mutex_lock(&mutex);
	expect(pthread_cond_timedwait(&never, &mutex, &until) != 0, "nobody signals");
	double waited = wall() - began;
	expect(waited > 0.9 && waited < 10, "a wait until a point in time takes that long");
}

int main(void)
{
	struct passed before = pass();
	expect(before.own > 0.9 * before.wall, "time passes as usual before a device is open");
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	expect(context != NULL, "a device");
	struct passed after = pass();
	double factor = after.wall / after.own;
	printf("before %.4f of %.4f s, after %.6f of %.4f s\n", before.own, before.wall, after.own, after.wall);
	expect(factor > 80 && factor < 120, "time passes 100 times slower");
	expect(after.real < 1.2 * after.own && after.own < 1.2 * after.real, "the clocks agree");
	double frequency = before.counter / before.own;
	expect(after.counter < 1.2 * frequency * after.own, "the counter agrees");
	expect(after.counter > 0.8 * frequency * after.own, "the counter agrees, too");
	// As perftest finds the frequency of the counter.
	struct timeval start, now;
	double began = wall();
	gettimeofday(&start, NULL);
	do {
		gettimeofday(&now, NULL);
	} while ((now.tv_sec - start.tv_sec) * 1000000 + now.tv_usec - start.tv_usec < 300000);
	expect(wall() - began < 15, "who only reads clocks is slowed ten times at most");
	faults_are_the_programs();
	threads_read_it();
	other_programs_run();
	waits_end();
	ibv_close_device(context);
	puts("all right");
	return 0;
}
