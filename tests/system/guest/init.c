// SPDX-License-Identifier: Apache-2.0
// Process 1 of a guest, and the processes that carry out commands.
#include "guest.h"

#include <fcntl.h>
#include <linux/reboot.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <dirent.h>

#define LINE_MAX_BYTES 65536
#define WORKERS_MAX    32

volatile sig_atomic_t guest_stop;
static int serial;

// --- saying ---

static char said[LINE_MAX_BYTES];
static size_t said_len;

__attribute__((format(printf, 1, 2))) static void add(const char *format, ...)
{
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(said + said_len, sizeof(said) - said_len, format, ap);
    va_end(ap);
    if (n > 0 && said_len + (size_t)n < sizeof(said) - 2)
        said_len += (size_t)n;
}

void say_begin(const struct command *c)
{
    said_len = 0;
    add("{\"n\": %lu", c->number);
}

void say_text(const char *name, const char *value)
{
    add(", \"%s\": \"", name);
    for (const unsigned char *p = (const unsigned char *)value; *p; p++) {
        if (*p < 0x20 || *p >= 0x7f || *p == '"' || *p == '\\')
            add("\\u%04x", *p);
        else
            add("%c", *p);
    }
    add("\"");
}

void say_number(const char *name, int64_t value)
{
    add(", \"%s\": %lld", name, (long long)value);
}

static void write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);

        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

void say_end(void)
{
    add("}\n");
    write_all(serial, said, said_len);
    said_len = 0;
}

void say_result(int rc)
{
    say_number("end", rc);
    say_end();
}

const char *word(const struct command *c, int i)
{
    return i < c->argc ? c->argv[i] : "";
}

uint64_t word_number(const struct command *c, int i)
{
    return i < c->argc ? strtoull(c->argv[i], NULL, 0) : 0;
}

uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// --- lines ---

// Cuts a line into words; its worker's name is returned, NULL if it is none.
static char *parse(char *line, struct command *ret)
{
    char *worker = strsep(&line, "\t"), *number = strsep(&line, "\t"), *w;

    if (!number)
        return NULL;
    ret->number = strtoul(number, NULL, 10);
    ret->argc = 0;
    while ((w = strsep(&line, "\t")) && ret->argc < WORDS_MAX)
        ret->argv[ret->argc++] = w;
    ret->argv[ret->argc] = NULL;
    return ret->argc ? worker : NULL;
}

static const struct command_kind *find(const char *name)
{
    const struct command_kind *tables[] = {file_commands, pci_commands, gdd_commands};

    for (size_t i = 0; i < 3; i++)
        for (const struct command_kind *k = tables[i]; k->name; k++)
            if (!strcmp(k->name, name))
                return k;
    return NULL;
}

// --- workers ---

struct worker {
    char name[32];
    pid_t pid;
    int pipe;
};

static struct worker workers[WORKERS_MAX];

static void on_stop(int signal)
{
    guest_stop = 1;
}

static void work(int fd)
{
    static char line[LINE_MAX_BYTES];
    struct sigaction stop = {.sa_handler = on_stop}; // no SA_RESTART: calls that wait end
    FILE *in = fdopen(fd, "r");

    sigaction(SIGUSR1, &stop, NULL);
    while (in && fgets(line, sizeof(line), in)) {
        const struct command_kind *k;
        struct command c;
        int rc;

        line[strcspn(line, "\n")] = 0;
        if (!parse(line, &c))
            continue;
        guest_stop = 0;
        k = find(c.argv[0]);
        say_begin(&c);
        rc = k ? k->run(&c) : -ENOSYS;
        say_result(rc);
    }
    _exit(0);
}

static struct worker *worker_get(const char *name)
{
    struct worker *w = NULL;
    int ends[2];

    for (size_t i = 0; i < WORKERS_MAX; i++) {
        if (workers[i].pid && !strcmp(workers[i].name, name))
            return &workers[i];
        if (!workers[i].pid && !w)
            w = &workers[i];
    }
    if (!w || pipe2(ends, O_CLOEXEC) < 0)
        return NULL;
    snprintf(w->name, sizeof(w->name), "%s", name);
    w->pid = fork();
    if (w->pid == 0) {
        for (size_t i = 0; i < WORKERS_MAX; i++)
            if (workers[i].pid && workers[i].pipe != ends[1])
                close(workers[i].pipe);
        close(ends[1]);
        work(ends[0]);
    }
    close(ends[0]);
    w->pipe = ends[1];
    return w;
}

static void worker_end(struct worker *w)
{
    kill(w->pid, SIGKILL);
    waitpid(w->pid, NULL, 0);
    close(w->pipe);
    w->pid = 0;
}

// --- process 1 ---

static int own_command(const struct command *c)
{
    const char *what = word(c, 0);
    struct worker *w;

    if (!strcmp(what, "reboot")) {
        say_result(0);
        tcdrain(serial);
        reboot(RB_AUTOBOOT);
        return -EIO;
    }
    w = worker_get(word(c, 1));
    if (!w)
        return -EAGAIN;
    if (!strcmp(what, "stop"))
        return kill(w->pid, SIGUSR1) < 0 ? -errno : 0;
    if (!strcmp(what, "kill")) {
        worker_end(w);
        return 0;
    }
    return -ENOSYS;
}

static void carry_out(char *line)
{
    static char copy[LINE_MAX_BYTES];
    struct command c;
    struct worker *w;
    char *name;

    memcpy(copy, line, strlen(line) + 1);
    line[strcspn(line, "\n")] = 0;
    name = parse(line, &c);
    if (!name)
        return;
    if (!strcmp(name, "init")) {
        int rc = own_command(&c);

        say_begin(&c);
        say_result(rc);
        return;
    }
    w = worker_get(name);
    if (w) {
        write_all(w->pipe, copy, strlen(copy));
        return;
    }
    say_begin(&c);
    say_result(-EAGAIN);
}

static void load_modules(void)
{
    struct dirent **names;
    int n = scandir("/modules", &names, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        char path[300];
        int fd;

        snprintf(path, sizeof(path), "/modules/%s", names[i]->d_name);
        fd = names[i]->d_name[0] == '.' ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && syscall(SYS_finit_module, fd, "", 0) < 0)
            printf("guest: %s: %s\n", path, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
}

static void must(int rc, const char *what)
{
    if (rc >= 0)
        return;
    printf("guest: %s: %s\n", what, strerror(errno));
    sleep(1);
    reboot(RB_POWER_OFF);
}

static void open_serial(void)
{
    struct termios t;

    serial = open("/dev/ttyS1", O_RDWR | O_NOCTTY | O_CLOEXEC);
    must(serial, "/dev/ttyS1");
    must(tcgetattr(serial, &t), "tcgetattr");
    cfmakeraw(&t);
    must(tcsetattr(serial, TCSANOW, &t), "tcsetattr");
}

int main(void)
{
    static char line[LINE_MAX_BYTES];
    FILE *in;

    umask(0);
    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mkdir("/dev", 0755);
    mkdir("/tmp", 01777);
    mkdir("/mnt", 0755);
    must(mount("dev", "/dev", "devtmpfs", 0, NULL), "/dev");
    must(mount("proc", "/proc", "proc", 0, NULL), "/proc");
    must(mount("sys", "/sys", "sysfs", 0, NULL), "/sys");
    setvbuf(stdout, NULL, _IONBF, 0);
    load_modules();
    open_serial();
    in = fdopen(dup(serial), "r");
    must(in ? 0 : -1, "fdopen");
    write_all(serial, "{\"ready\": true}\n", 16);
    while (fgets(line, sizeof(line), in))
        carry_out(line);
    reboot(RB_POWER_OFF);
    return 0;
}
