// The wall clock of a process that is started with this in LD_PRELOAD, moved by the nanoseconds in the file REDISTEST_OFFSET.
// It asks the kernel itself: a C library whose memory allocator reads clocks while it starts would call itself.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
	const char *name = getenv("REDISTEST_OFFSET");
	int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0) return;
	void *at = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (at != MAP_FAILED) offset = at;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, clock, t);
	if (failed || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
	int64_t at = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + *offset;
	t->tv_sec = at / 1000000000;
	t->tv_nsec = at % 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (out) *out = now.tv_sec;
	return now.tv_sec;
}
