/* Faults of disk and clock for one process tree, by LD_PRELOAD. What goes wrong is read from a file that is mapped into
 * memory (SHARP_FAULTS_CONTROL), so it can begin and end while the processes run; files outside SHARP_FAULTS_FOLDER are
 * left alone. Layout of the file: double seconds of each fsync, int64 seconds that the clock is ahead, int64 errno of
 * writes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control { double fsync_seconds; int64_t ahead; int64_t write_errno; };
static const struct control *control;
static const char *folder;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("SHARP_FAULTS_CONTROL");
    folder = getenv("SHARP_FAULTS_FOLDER");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) control = mapped;
    close(file);
}

static int within(const char *path) { return folder && strncmp(path, folder, strlen(folder)) == 0; }

static int ours(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return within(path);
}

static int fails(int descriptor) {
    if (!control || !control->write_errno || !ours(descriptor)) return 0;
    errno = (int)control->write_errno;
    return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void wait_for_disk(int descriptor) {
    if (!control || control->fsync_seconds <= 0 || !ours(descriptor)) return;
    double seconds = control->fsync_seconds;
    struct timespec pause = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&pause, NULL);
}

int fsync(int descriptor) { wait_for_disk(descriptor); return fails(descriptor) ? -1 : NEXT(fsync)(descriptor); }
int fdatasync(int descriptor) { wait_for_disk(descriptor); return fails(descriptor) ? -1 : NEXT(fdatasync)(descriptor); }
ssize_t write(int d, const void *b, size_t n) { return fails(d) ? -1 : NEXT(write)(d, b, n); }
ssize_t pwrite(int d, const void *b, size_t n, off_t at) { return fails(d) ? -1 : NEXT(pwrite)(d, b, n, at); }
ssize_t pwrite64(int d, const void *b, size_t n, off64_t at) { return fails(d) ? -1 : NEXT(pwrite64)(d, b, n, at); }
int ftruncate(int d, off_t size) { return fails(d) ? -1 : NEXT(ftruncate)(d, size); }
int ftruncate64(int d, off64_t size) { return fails(d) ? -1 : NEXT(ftruncate64)(d, size); }

/* A disk that is read-only makes no files, either; a full one does. */
static int refuses(const char *path, int flags) {
    if (!control || control->write_errno != EROFS || !within(path)) return 0;
    if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_CREAT)) return 0;
    errno = EROFS;
    return 1;
}

int open(const char *path, int flags, ...) {
    __builtin_va_list list;
    __builtin_va_start(list, flags);
    mode_t mode = flags & O_CREAT ? __builtin_va_arg(list, mode_t) : 0;
    __builtin_va_end(list);
    return refuses(path, flags) ? -1 : NEXT(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    __builtin_va_list list;
    __builtin_va_start(list, flags);
    mode_t mode = flags & O_CREAT ? __builtin_va_arg(list, mode_t) : 0;
    __builtin_va_end(list);
    return refuses(path, flags) ? -1 : NEXT(open64)(path, flags, mode);
}
int rename(const char *from, const char *to) { return refuses(to, O_WRONLY) ? -1 : NEXT(rename)(from, to); }
int unlink(const char *path) { return refuses(path, O_WRONLY) ? -1 : NEXT(unlink)(path); }

int clock_gettime(clockid_t clock, struct timespec *found) {
    int result = NEXT(clock_gettime)(clock, found);
    if (control && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) found->tv_sec += control->ahead;
    return result;
}
int gettimeofday(struct timeval *found, void *zone) {
    int result = NEXT(gettimeofday)(found, zone);
    if (control) found->tv_sec += control->ahead;
    return result;
}
time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
