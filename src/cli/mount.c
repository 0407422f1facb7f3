// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "base/log.h"
#include "base/mount_table.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/fstab.h"
#include "daemon/supervisor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct mount_request {
    struct export_options *options;
    bool foreground;
    bool debug;
};

// --- getting ready ---

static int set_directory(struct export_options *o, const char *directory, char **ret_error)
{
    char *absolute = mount_table_absolute(directory);

    if (!absolute) {
        *ret_error = errno == ENOENT ? xasprintf("%s does not exist; create it: mkdir -p %s",
                                                 directory, directory)
                                     : xasprintf("%s: %s", directory, strerror(errno));
        return -EINVAL;
    }
    export_options_set_directory(o, absolute);
    free(absolute);
    return 0;
}

static int prepare(struct export_options *o, const char *source, const char *directory,
                   char **ret_error)
{
    int rc = export_options_set_source(o, source, ret_error);

    if (rc == 0)
        rc = set_directory(o, directory, ret_error);
    if (rc == 0)
        rc = export_options_default_socket(o, getenv("OS2G_SOCKET"), ret_error);
    if (rc == 0)
        rc = export_options_complete(o, ret_error);
    if (rc == 0 && o->log_level)
        log_configure(o->log_level);
    return rc;
}

// --- the background process ---

static int open_log(const char *directory)
{
    char stamp[17], *path;
    int fd;

    clock_format_amz_date(clock_wall_s(), stamp);
    path = xasprintf("%s/os2g-%s-%d.log", directory, stamp, (int)getpid());
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    free(path);
    return fd < 0 ? -errno : fd;
}

// Where the log goes from now on, also of the workers (worker.h).
static const char *redirect_log(const struct export_options *o, bool foreground)
{
    int null_fd, fd = o->log_directory ? open_log(o->log_directory) : -1;

    if (fd >= 0) {
        dup2(fd, STDERR_FILENO);
        close(fd);
        log_use_fd(STDERR_FILENO);
    }
    if (foreground)
        return fd >= 0 ? "file" : "stderr";
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd >= 0) {
        dup2(null_fd, STDIN_FILENO);
        dup2(null_fd, STDOUT_FILENO);
        if (fd < 0)
            dup2(null_fd, STDERR_FILENO);
        close(null_fd);
    }
    if (fd >= 0)
        return "file";
    return log_open_syslog("os2g") == 0 ? "syslog" : "stderr";
}

struct readiness {
    int pipe_fd; // to the parent, or -1 in the foreground
    bool told;
};

// One byte: '+', or '-' and a sentence.
static void tell_parent(struct readiness *r, const char *error)
{
    char *text = error ? xasprintf("-%s", error) : xstrdup("+");

    if (!r->told && r->pipe_fd >= 0 && write(r->pipe_fd, text, strlen(text)) < 0)
        log_warning("mount", "the command that started this has gone");
    if (r->pipe_fd >= 0)
        close(r->pipe_fd);
    r->pipe_fd = -1;
    r->told = true;
    free(text);
}

static void on_settled(void *arg, const struct export_options *o, const char *error, int reason,
                       bool first)
{
    struct readiness *r = arg;

    if (error && r->pipe_fd < 0)
        log_error("mount", "%s", error);
    tell_parent(r, error);
}

static void free_options(struct export_options *o)
{
    export_options_fini(o);
    free(o);
}

// o becomes the supervisor's.
static int supervise(struct export_options *o, const char *log_style, int pipe_fd)
{
    struct readiness readiness = {.pipe_fd = pipe_fd};
    const struct supervisor_config config = {
        .log_style = log_style,
        .settled = on_settled,
        .arg = &readiness,
    };
    struct supervisor *s;
    int rc = supervisor_new(&s, &config);

    if (rc < 0) {
        on_settled(&readiness, o, strerror(-rc), -rc, true);
        free_options(o);
        return 1;
    }
    supervisor_add(s, o);
    rc = supervisor_run(s);
    supervisor_free(s);
    return rc;
}

// --- the command itself ---

static int wait_until_ready(const struct cli_command *c, int pipe_fd)
{
    struct buf text = {0};
    char piece[1024];
    ssize_t n;
    int rc;

    do {
        n = read(pipe_fd, piece, sizeof(piece));
        if (n > 0)
            buf_add(&text, piece, (size_t)n);
    } while (n > 0 || (n < 0 && errno == EINTR));
    if (buf_str(&text)[0] == '+')
        rc = 0;
    else if (text.len > 1)
        rc = cli_fail(c, NULL, "%s", text.data + 1);
    else
        rc = cli_fail(c, "With --foreground it shows why.", "the daemon ended before it was ready");
    buf_free(&text);
    return rc;
}

// The daemon outlives its caller, whose pipes and locks it must not hold. Returns fd's new number.
static int keep_only(int fd)
{
    int kept = STDERR_FILENO + 1;

    if (fd != kept)
        dup2(fd, kept);
    fcntl(kept, F_SETFD, FD_CLOEXEC);
    close_range((unsigned)kept + 1, ~0U, 0);
    return kept;
}

// Takes o over. Returns in the daemon, too.
static int mount_run(const struct cli_command *c, struct export_options *o, bool foreground)
{
    int fds[2], rc;
    pid_t pid;

    if (foreground)
        return supervise(o, redirect_log(o, true), -1);
    fflush(NULL);
    pid = pipe2(fds, O_CLOEXEC) < 0 ? -1 : fork();
    if (pid == 0) {
        fds[1] = keep_only(fds[1]);
        setsid();
        if (chdir("/") < 0)
            log_warning("mount", "/: %s", strerror(errno));
        return supervise(o, redirect_log(o, false), fds[1]);
    }
    free_options(o);
    if (pid < 0)
        return cli_fail(c, NULL, "no process for the daemon: %s", strerror(errno));
    close(fds[1]);
    rc = wait_until_ready(c, fds[0]);
    close(fds[0]);
    return rc;
}

static int set_foreground(void *target, const char *value, char **ret_error)
{
    ((struct mount_request *)target)->foreground = true;
    return 0;
}

static int set_debug(void *target, const char *value, char **ret_error)
{
    return export_options_set(((struct mount_request *)target)->options, "log-level", "debug",
                              ret_error);
}

static int set_fstab_options(void *target, const char *value, char **ret_error)
{
    return fstab_options_apply(((struct mount_request *)target)->options, value, false, ret_error);
}

static int run(int argc, char **argv)
{
    struct export_options *o = xcalloc(1, sizeof(*o));
    struct mount_request request = {.options = o};
    struct cli_arguments words;
    char *error = NULL;
    int rc = -EINVAL;

    export_options_init(o);
    export_options_set_owner(o, getuid(), getgid());
    cli_parse(&mount_command, argc, argv, &request, o, &words);
    if (words.n == 2)
        rc = prepare(o, words.words[0], words.words[1], &error);
    else
        error = xstrdup("say what to mount and where: os2g mount s3://bucket DIR");
    free(words.words);
    if (rc < 0) {
        cli_fail(&mount_command, "See: os2g mount --help", "%s", error);
        free(error);
        free_options(o);
        return EXIT_USAGE;
    }
    return mount_run(&mount_command, o, request.foreground);
}

static const struct cli_option options[] = {
    {"foreground", 'f', NULL, "stay, and log to the terminal", set_foreground},
    {"debug", 'd', NULL, "the same as --log-level debug", set_debug},
    {"options", 'o', "OPTIONS", "options as in /etc/fstab, separated by commas", set_fstab_options},
    {NULL},
};

const struct cli_command mount_command = {
    .name = "mount",
    .synopsis = "s3://bucket[/prefix] DIR",
    .summary = "Shows a bucket, or what is below a prefix, as read-only files in DIR",
    .text = "Returns once the files are there, or says why they cannot be. To end it:\n"
            "os2g umount DIR. A line for /etc/fstab:\n"
            "  s3://bucket /data os2g _netdev,allow_other,endpoint_url=http://10.0.0.5:9000 0 0",
    .options = options,
    .export_groups = EXPORT_GROUP_ALL,
    .run = run,
};

// --- mount(8)'s helper ---

static const struct cli_command helper_command = {.name = "mount.os2g", .program = true};

struct helper_line {
    const char *words[2], *options;
    bool sloppy, fake;
};

// SOURCE DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS], see mount(8).
static int read_helper_line(int argc, char **argv, struct helper_line *ret)
{
    size_t n = 0;

    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];

        if (arg[0] != '-') {
            if (n == ARRAY_LEN(ret->words))
                return -EINVAL;
            ret->words[n++] = arg;
        } else if (!strcmp(arg, "-o") || !strcmp(arg, "-t") || !strcmp(arg, "-N")) {
            if (++i == argc)
                return -EINVAL;
            if (arg[1] == 'o')
                ret->options = argv[i];
        } else {
            ret->sloppy |= strchr(arg, 's') != NULL;
            ret->fake |= strchr(arg, 'f') != NULL;
        }
    }
    return n == ARRAY_LEN(ret->words) ? 0 : -EINVAL;
}

int mount_helper_main(int argc, char **argv)
{
    struct export_options *o = xcalloc(1, sizeof(*o));
    struct helper_line line = {.options = ""};
    char *error = NULL;
    int rc;

    export_options_init(o);
    export_options_set_owner(o, getuid(), getgid());
    rc = read_helper_line(argc, argv, &line);
    if (rc < 0)
        error = xstrdup("usage: mount.os2g s3://bucket[/prefix] DIR [-o OPTIONS]");
    else
        rc = fstab_options_apply(o, line.options, line.sloppy, &error);
    if (rc == 0)
        rc = prepare(o, line.words[0], line.words[1], &error);
    if (rc == 0 && !line.fake)
        return mount_run(&helper_command, o, false);
    if (rc < 0)
        cli_fail(&helper_command, NULL, "%s", error);
    free(error);
    free_options(o);
    return rc < 0 ? EXIT_USAGE : 0;
}
