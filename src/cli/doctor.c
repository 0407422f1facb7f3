// SPDX-License-Identifier: Apache-2.0
// os2g doctor: looks at everything a mount depends on, from this machine to the bucket; each line
// that is not "ok" says what to do.
#include "cli/commands.h"

#include "base/clock.h"
#include "cli/session.h"

#include <fcntl.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

enum verdict { OK, NOTE, BAD };

struct doctor {
    struct export_options *options;
    const char *prefix;
    struct session *session;
    struct s3_endpoint endpoint;
    unsigned bad;
};

PRINTF_LIKE(4, 5)
static void say(struct doctor *d, enum verdict v, const char *what, const char *fmt, ...)
{
    static const char *const words[] = {"ok  ", "note", "BAD "};
    va_list args;

    if (v == BAD)
        d->bad++;
    printf("%s  %-12s ", words[v], what);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

// --- this machine ---

static void check_fuse(struct doctor *d)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC), error = errno;

    if (fd >= 0) {
        say(d, OK, "FUSE", "/dev/fuse can be opened");
        close(fd);
    } else if (error == ENOENT) {
        say(d, BAD, "FUSE",
            "there is no /dev/fuse: run modprobe fuse; in a container, pass the device to it "
            "(--device /dev/fuse --cap-add SYS_ADMIN)");
    } else if (geteuid() == 0) {
        say(d, BAD, "FUSE", "/dev/fuse: %s: in a container, pass the device to it",
            strerror(error));
    }
    if (geteuid() != 0) {
        bool there =
            access("/bin/fusermount3", X_OK) == 0 || access("/usr/bin/fusermount3", X_OK) == 0;

        if (!there)
            say(d, BAD, "FUSE", "no fusermount3: install the package fuse3, or mount as root");
        else if (fd >= 0)
            say(d, OK, "FUSE", "fusermount3 mounts for ordinary users");
        else if (error != ENOENT)
            say(d, BAD, "FUSE",
                "/dev/fuse: %s: let users open it (chmod 666 /dev/fuse, as distributions set it), "
                "or mount as root",
                strerror(error));
        say(d, NOTE, "read-ahead",
            "only root can raise a mount's read-ahead above 128 KiB: mount as root for large "
            "sequential reads, or use --direct-io");
    }
}

static void check_limits(struct doctor *d)
{
    struct rlimit files;
    struct utsname u;

    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max < 1024)
        say(d, BAD, "limits", "at most %lu open files: raise it (ulimit -n 4096)",
            (unsigned long)files.rlim_max);
    else
        say(d, OK, "limits", "up to %lu open files", (unsigned long)files.rlim_max);
    if (uname(&u) == 0)
        say(d, OK, "kernel", "%s", u.release);
}

// --- the way to the store ---

static int check_settings(struct doctor *d)
{
    const struct s3_settings *s = &d->options->s3;
    char *error = NULL;
    int rc = s3_endpoint_build(s, NULL, &d->endpoint, &error);

    if (rc < 0) {
        say(d, BAD, "endpoint", "%s", error ? error : strerror(-rc));
    } else {
        say(d, OK, "endpoint", "%s://%s%s, %s style, region %s", d->endpoint.tls ? "https" : "http",
            d->endpoint.host_header, d->endpoint.base_path,
            d->endpoint.path_style ? "path" : "virtual-host", s->region ? s->region : "us-east-1");
    }
    free(error);
    return rc;
}

static int check_name(struct doctor *d)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc = getaddrinfo(d->endpoint.host, NULL, &hints, &list);
    unsigned n = 0;

    if (rc) {
        say(d, BAD, "name", "%s: %s: check the endpoint%s and this machine's DNS", d->endpoint.host,
            gai_strerror(rc),
            d->endpoint.path_style ? ""
                                   : ", or try --force-path-style (the bucket is in the name)");
        return -ENOENT;
    }
    for (struct addrinfo *a = list; a; a = a->ai_next)
        n++;
    freeaddrinfo(list);
    say(d, OK, "name", "%s has %u address%s", d->endpoint.host, n, n == 1 ? "" : "es");
    return 0;
}

// One unsigned request: does it connect, and what time is it there?
struct clock_check {
    struct http_exchange x;
    struct http_client *client;
    struct session_wait wait;
    struct iovec request;
    char sink[4096];
    int64_t server_s;
    int status;
};

static int clock_head(struct http_exchange *x, const struct http_head *head)
{
    struct clock_check *c = container_of(x, struct clock_check, x);
    const char *date = http_head_find(head, "date");

    c->status = head->status;
    if (!date || clock_parse_http_date(date, &c->server_s) < 0)
        c->server_s = 0;
    return 0;
}

static int clock_room(struct http_exchange *x, struct iovec *iov, int max)
{
    struct clock_check *c = container_of(x, struct clock_check, x);

    iov[0] = (struct iovec){c->sink, sizeof(c->sink)};
    return 1;
}

static int clock_body(struct http_exchange *x, size_t n)
{
    return 0;
}

static void clock_done(struct http_exchange *x, int error)
{
    struct clock_check *c = container_of(x, struct clock_check, x);

    session_wait_done(&c->wait, c->status ? 0 : error, x->error_text);
}

struct clock_start {
    struct doctor *doctor;
    struct clock_check *check;
    int rc;
};

static void clock_start(void *arg)
{
    struct clock_start *s = arg;
    const struct s3_settings *settings = &s->doctor->options->s3;
    struct http_client_config config = {.ca_file = settings->ca_file,
                                        .proxy = settings->proxy,
                                        .max_connections = 1,
                                        .connect_timeout_ns = 10 * NS_PER_S,
                                        .stall_timeout_ns = 10 * NS_PER_S,
                                        .idle_timeout_ns = NS_PER_S};

    s->rc = http_client_new(&s->check->client, s->doctor->session->loop, &config);
    if (s->rc == 0)
        http_exchange_start(s->check->client, &s->check->x);
}

static void clock_stop(void *arg)
{
    http_client_free(arg);
}

static int check_clock(struct doctor *d)
{
    struct clock_check *c = xcalloc(1, sizeof(*c));
    struct clock_start start = {.doctor = d, .check = c};
    char *request = xasprintf("GET /?os2g-doctor HTTP/1.1\r\nHost: %s\r\n"
                              "User-Agent: os2g/" OS2G_VERSION "\r\n\r\n",
                              d->endpoint.host_header);
    int64_t skew;
    int rc;

    c->request = (struct iovec){request, strlen(request)};
    c->x = (struct http_exchange){.tls = d->endpoint.tls,
                                  .host = d->endpoint.host,
                                  .port = d->endpoint.port,
                                  .request = &c->request,
                                  .request_iovs = 1,
                                  .on_head = clock_head,
                                  .on_room = clock_room,
                                  .on_body = clock_body,
                                  .on_done = clock_done};
    session_wait_init(&c->wait);
    session_call(d->session, clock_start, &start);
    rc = start.rc < 0 ? start.rc : session_wait_for(&c->wait);
    if (start.rc == 0)
        session_call(d->session, clock_stop, c->client);
    if (rc < 0) {
        say(d, BAD, "connection", "%s:%u: %s", d->endpoint.host, d->endpoint.port,
            *c->wait.text ? c->wait.text : strerror(-rc));
        goto out;
    }
    say(d, OK, "connection", "answered in %.1f ms (%s)",
        (double)(c->x.first_byte_ns - c->x.started_ns) / 1e6, c->x.peer);
    skew = c->server_s ? clock_wall_s() - c->server_s : 0;
    if (skew > 900 || skew < -900)
        say(d, BAD, "clock",
            "differs from the store's by %ld s; more than 15 minutes are refused: set it (NTP). "
            "OS2G learns the offset and goes on, other clients do not",
            (long)skew);
    else if (!c->server_s)
        say(d, NOTE, "clock", "the store does not say what time it is");
    else
        say(d, OK, "clock", "within %ld s of the store's", labs((long)skew));
out:
    free(request);
    free(c);
    return rc;
}

// --- rights ---

struct keys_check {
    struct credentials_wait wait;
    struct doctor *doctor;
    struct session_wait over;
};

static void keys_done(struct credentials_wait *w, struct credentials *c, int error,
                      const char *error_text)
{
    struct keys_check *k = container_of(w, struct keys_check, wait);

    if (c && c->expires_s)
        say(k->doctor, OK, "credentials", "%s, for another %ld s", c->source,
            (long)(c->expires_s - clock_wall_s()));
    else if (c)
        say(k->doctor, OK, "credentials", "%s", c->source);
    else
        say(k->doctor, BAD, "credentials", "%s",
            error_text && *error_text ? error_text : strerror(-error));
    credentials_unref(c);
    session_wait_done(&k->over, error, NULL);
}

static void keys_start(void *arg)
{
    struct keys_check *k = arg;

    credentials_provider_wait(k->doctor->session->provider, &k->wait);
}

static int check_credentials(struct doctor *d)
{
    struct keys_check k = {.wait = {.done = keys_done}, .doctor = d};

    session_wait_init(&k.over);
    session_call(d->session, keys_start, &k);
    return session_wait_for(&k.over);
}

struct probe_check {
    struct s3_probe probe;
    struct s3_client *client;
    struct session_wait wait;
};

static void probe_done(struct s3_probe *p, int error)
{
    session_wait_done(&container_of(p, struct probe_check, probe)->wait, error, p->error_text);
}

static void probe_start(void *arg)
{
    struct probe_check *p = arg;

    s3_probe_start(p->client, &p->probe);
}

static int check_list(struct doctor *d)
{
    struct probe_check p = {.probe = {.prefix = d->prefix, .done = probe_done},
                            .client = d->session->client};
    int rc;

    session_wait_init(&p.wait);
    session_call(d->session, probe_start, &p);
    rc = session_wait_for(&p.wait);
    if (rc < 0)
        say(d, BAD, "list", "%s", *p.wait.text ? p.wait.text : strerror(-rc));
    else
        say(d, OK, "list", "s3://%s/%s can be listed", d->options->s3.bucket, d->prefix);
    return rc;
}

// The first object found, which is then asked for.
static int take_first(void *arg, const struct s3_list_entry *e)
{
    char **key = arg;

    *key = xmemdup(e->key, e->key_len);
    return -ECANCELED; // one is enough
}

static void check_get(struct doctor *d)
{
    char text[S3_ERROR_TEXT], *key = NULL;
    int rc;

    session_list(d->session, d->prefix, 0, take_first, &key, text);
    if (!key) {
        say(d, NOTE, "get", "there is no object to try it on");
        return;
    }
    rc = session_head(d->session, key, NULL, NULL, text);
    if (rc < 0)
        say(d, BAD, "get", "%s: %s", key, *text ? text : strerror(-rc));
    else
        say(d, OK, "get", "%s can be read", key);
    free(key);
}

static void check_store(struct doctor *d)
{
    struct session session;
    char *error = NULL;
    int rc = session_open(&session, d->options, &error);

    if (rc < 0) {
        say(d, BAD, "settings", "%s", error ? error : strerror(-rc));
        free(error);
        return;
    }
    d->session = &session;
    if (check_settings(d) == 0) {
        // behind a proxy this machine may not know the name, and need not
        rc = d->options->s3.proxy ? 0 : check_name(d);
        if (rc == 0 && check_clock(d) == 0 && check_credentials(d) == 0 && check_list(d) == 0)
            check_get(d);
    }
    session_close(&session);
}

static int run(int argc, char **argv)
{
    struct export_options export;
    struct doctor d = {.options = &export};
    struct cli_arguments words;
    char *key = NULL, *error = NULL;
    int rc = 0;

    export_options_init(&export);
    cli_parse(&doctor_command, argc, argv, NULL, &export, &words);
    if (words.n > 1) {
        cli_fail(&doctor_command, "See: os2g doctor --help", "name at most one bucket");
        rc = EXIT_USAGE;
    } else if (words.n == 1 && session_source(&export, words.words[0], &key, &error) < 0) {
        rc = session_fail(&doctor_command, error, -EINVAL);
    } else {
        check_fuse(&d);
        check_limits(&d);
        d.prefix = key;
        if (key)
            check_store(&d);
        else
            say(&d, NOTE, "store", "not looked at: name a bucket, os2g doctor s3://BUCKET");
        rc = d.bad ? 1 : 0;
    }
    free(words.words);
    free(key);
    free(error);
    export_options_fini(&export);
    return rc;
}

const struct cli_command doctor_command = {
    .name = "doctor",
    .synopsis = "[s3://BUCKET[/PREFIX]]",
    .summary = "Looks for what keeps a mount from working",
    .text =
        "FUSE, limits, name resolution, addressing style, the clock, credentials, the rights to "
        "list and to get. Each line that is BAD says what to do.",
    .export_groups = SESSION_EXPORT_GROUPS,
    .run = run,
};
