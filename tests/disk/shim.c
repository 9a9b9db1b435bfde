/* shim: calls of the C library that write to a disk, recorded or failing on purpose; loaded with LD_PRELOAD. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char pattern[PATH_MAX], calls[256];
static int failure, recording = -1;
static long skip, times;

/* The next `times` of these calls (all, if negative) on paths like `glob`, after `skip` of them, fail with `error`.
   -9 kills the process instead. A write that fails with ENOSPC first writes half of its bytes, as full disks do. */
void fault_set(const char *glob, const char *which, int error, long skipped, long count) {
    snprintf(pattern, sizeof pattern, "%s", glob);
    snprintf(calls, sizeof calls, ",%s,", which);
    failure = error, skip = skipped, times = count;
}

void fault_record(const char *file) {
    recording = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static void whole(int folder, const char *path, char *out) {
    char link[64];
    ssize_t size = 0;
    if (path[0] != '/') {
        if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        size = readlink(link, out, PATH_MAX - 2);
        if (size < 0) size = 0;
        out[size++] = '/';
    }
    snprintf(out + size, PATH_MAX - size, "%s", path);
}

static void of_descriptor(int descriptor, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, out, PATH_MAX - 1);
    out[size < 0 ? 0 : size] = 0;
}

static int fails(const char *call, const char *path) {
    char named[32];
    snprintf(named, sizeof named, ",%s,", call);
    if (!times || path[0] != '/' || !strstr(calls, named) || fnmatch(pattern, path, 0)) return 0;
    if (skip > 0) { skip--; return 0; }
    if (times > 0) times--;
    if (failure == -9) syscall(SYS_kill, getpid(), SIGKILL);
    errno = failure;
    return 1;
}

static void record(const char *call, const char *path, const char *other) {
    char line[2 * PATH_MAX + 64];
    if (recording < 0 || path[0] != '/') return;
    int size = snprintf(line, sizeof line, "%s\t%s\t%s\n", call, path, other);
    syscall(SYS_write, recording, line, (size_t)size);
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, name)

#define OPEN(name, at, given, folder)                                                                   \
    int name(given const char *path, int flags, ...) {                                                  \
        REAL(int, #name, given const char *, int, ...);                                                 \
        mode_t mode = 0;                                                                                \
        char here[PATH_MAX];                                                                            \
        va_list rest;                                                                                   \
        va_start(rest, flags);                                                                          \
        if (flags & (O_CREAT | __O_TMPFILE)) mode = va_arg(rest, mode_t);                               \
        va_end(rest);                                                                                   \
        int writes = flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC);                                   \
        if (writes) {                                                                                   \
            whole(folder, path, here);                                                                  \
            if (fails("open", here)) return -1;                                                         \
        }                                                                                               \
        int made = writes && (flags & O_CREAT) && access(here, F_OK);                                   \
        int got = real(at path, flags, mode);                                                           \
        if (got >= 0 && made) record("create", here, "");                                               \
        if (got >= 0 && (flags & O_TRUNC)) record("write", here, "");                                   \
        return got;                                                                                     \
    }
#define COMMA ,
OPEN(open, , , AT_FDCWD)
OPEN(open64, , , AT_FDCWD)
OPEN(openat, folder COMMA, int folder COMMA, folder)
OPEN(openat64, folder COMMA, int folder COMMA, folder)

#define WRITE(name, arguments, ...)                                                                     \
    ssize_t name(int descriptor, __VA_ARGS__) {                                                         \
        REAL(ssize_t, #name, int, __VA_ARGS__);                                                         \
        char path[PATH_MAX] = "";                                                                       \
        if (times || recording >= 0) of_descriptor(descriptor, path);                                   \
        if (fails("write", path)) return -1;                                                            \
        record("write", path, "");                                                                      \
        return real arguments;                                                                          \
    }
ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    char path[PATH_MAX] = "";
    if (times || recording >= 0) of_descriptor(descriptor, path);
    static long halved;
    if (fails("write", path)) {
        if (errno != ENOSPC || size < 2 || halved++ % 2) return -1;
        if (times >= 0) times++; /* the rest of it fails next */
        return real(descriptor, data, size / 2);
    }
    record("write", path, "");
    return real(descriptor, data, size);
}
WRITE(writev, (descriptor, parts, count), const struct iovec *parts, int count)
WRITE(pwrite, (descriptor, data, size, at), const void *data, size_t size, off_t at)
WRITE(pwrite64, (descriptor, data, size, at), const void *data, size_t size, off64_t at)

#define ON_FILE(name, call, arguments, ...)                                                             \
    int name(__VA_ARGS__) {                                                                             \
        REAL(int, #name, __VA_ARGS__);                                                                  \
        char path[PATH_MAX] = "";                                                                       \
        if (times || recording >= 0) of_descriptor(descriptor, path);                                   \
        if (fails(call, path)) return -1;                                                               \
        record(call, path, "");                                                                         \
        return real arguments;                                                                          \
    }
ON_FILE(fsync, "fsync", (descriptor), int descriptor)
ON_FILE(fdatasync, "fsync", (descriptor), int descriptor)
ON_FILE(ftruncate, "write", (descriptor, size), int descriptor, off_t size)
ON_FILE(ftruncate64, "write", (descriptor, size), int descriptor, off64_t size)
ON_FILE(flock, "flock", (descriptor, operation), int descriptor, int operation)

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    char old[PATH_MAX], new[PATH_MAX];
    whole(AT_FDCWD, from, old), whole(AT_FDCWD, to, new);
    if (fails("rename", new)) return -1;
    record("rename", old, new);
    return real(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    char old[PATH_MAX], new[PATH_MAX];
    whole(from_folder, from, old), whole(to_folder, to, new);
    if (fails("rename", new)) return -1;
    record("rename", old, new);
    return real(from_folder, from, to_folder, to);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    char here[PATH_MAX];
    whole(AT_FDCWD, path, here);
    if (fails("mkdir", here)) return -1;
    int made = real(path, mode);
    if (!made) record("mkdir", here, "");
    return made;
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    char here[PATH_MAX];
    whole(AT_FDCWD, path, here);
    if (fails("unlink", here)) return -1;
    record("unlink", here, "");
    return real(path);
}
