/* A clock that is off by CLOCK_SHIFT seconds, for a process that preloads this library. The monotonic clock is right.

libfaketime shifts the arguments of clock_nanosleep, too, by which Python sleeps. Needs no headers: the test machine may have none. */

typedef struct { long seconds, rest; } Time;
extern void *dlsym(void *, const char *);
extern char *getenv(const char *);
extern long atol(const char *);
#define NEXT(name) static typeof(&name) next; if (!next) next = (typeof(&name))dlsym((void *)-1L, #name)
enum { REALTIME = 0, REALTIME_COARSE = 5 };

static long shift(void) {
    static long seconds, known;
    if (!known) { seconds = atol(getenv("CLOCK_SHIFT")); known = 1; }
    return seconds;
}

int clock_gettime(int clock, Time *now) {
    NEXT(clock_gettime);
    int failed = next(clock, now);
    if (!failed && (clock == REALTIME || clock == REALTIME_COARSE)) now->seconds += shift();
    return failed;
}

int gettimeofday(Time *now, void *zone) {
    NEXT(gettimeofday);
    int failed = next(now, zone);
    if (!failed) now->seconds += shift();
    return failed;
}

long time(long *place) {
    NEXT(time);
    long now = next(0) + shift();
    if (place) *place = now;
    return now;
}

int sem_timedwait(void *semaphore, const Time *until) {
    NEXT(sem_timedwait);
    Time there = { until->seconds - shift(), until->rest };
    return next(semaphore, &there);
}
