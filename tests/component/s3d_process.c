// SPDX-License-Identifier: Apache-2.0
#include "s3d_process.h"

#include "base/buf.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_ARGS 64

static void give_up(const char *what)
{
    fprintf(stderr, "os2g-s3d: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void run(const char *port_file, const char *const *args)
{
    const char *argv[MAX_ARGS] = {getenv("OS2G_S3D"), "serve",       "--listen",
                                  "127.0.0.1:0",      "--port-file", port_file};
    int n = 6;

    // it must not outlive a test that crashes
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // our own standard output is the test's report
    dup2(STDERR_FILENO, STDOUT_FILENO);
    while (*args && n < MAX_ARGS - 1)
        argv[n++] = *args++;
    execv(argv[0], (char *const *)argv);
    give_up(argv[0]);
}

// The file is complete once it ends with a new line.
static bool read_port(const char *path, uint16_t *ret)
{
    char text[16] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0 || text[n - 1] != '\n')
        return false;
    *ret = (uint16_t)atoi(text);
    return *ret;
}

void s3d_process_start(struct s3d_process *p, const char *const *args)
{
    char dir[] = "/tmp/os2g-test-XXXXXX", *port_file;

    if (!getenv("OS2G_S3D")) {
        fprintf(stderr, "OS2G_S3D must name the os2g-s3d program\n");
        exit(1);
    }
    if (!mkdtemp(dir))
        give_up(dir);
    port_file = xasprintf("%s/port", dir);
    p->port = 0;
    p->pid = fork();
    if (p->pid < 0)
        give_up("fork");
    if (p->pid == 0)
        run(port_file, args);
    for (int i = 0; i < 2000 && !read_port(port_file, &p->port); i++) {
        if (waitpid(p->pid, NULL, WNOHANG) == p->pid)
            give_up("ended at once");
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (!p->port)
        give_up("does not listen");
    unlink(port_file);
    rmdir(dir);
    free(port_file);
    snprintf(p->url, sizeof(p->url), "http://127.0.0.1:%u", p->port);
}

void s3d_process_stop(struct s3d_process *p)
{
    int status;

    kill(p->pid, SIGTERM);
    if (waitpid(p->pid, &status, 0) != p->pid || !WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "os2g-s3d did not end well (status %x)\n", status);
        exit(1);
    }
}

// --- the admin ---

static void send_all(int fd, const char *s, size_t len)
{
    while (len) {
        ssize_t n = send(fd, s, len, MSG_NOSIGNAL);

        if (n <= 0)
            give_up("send");
        s += n;
        len -= (size_t)n;
    }
}

char *s3d_process_ask(struct s3d_process *p, const char *method, const char *path, const char *body)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(p->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct buf request = {0}, answer = {0};
    char *text, *end;
    ssize_t n;

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        give_up("connect");
    buf_printf(&request,
               "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %zu\r\n"
               "\r\n%s",
               method, path, strlen(body), body);
    send_all(fd, request.data, request.len);
    do {
        buf_reserve(&answer, 64 * 1024);
        n = recv(fd, answer.data + answer.len, 64 * 1024, 0);
        if (n < 0)
            give_up("recv");
        answer.len += (size_t)n;
        answer.data[answer.len] = 0;
    } while (n);
    close(fd);
    end = strstr(answer.data, "\r\n\r\n");
    if (strncmp(answer.data, "HTTP/1.1 2", 10) || !end) {
        fprintf(stderr, "%s %s: %s\n", method, path, answer.data);
        exit(1);
    }
    text = xstrdup(end + 4);
    buf_free(&request);
    buf_free(&answer);
    return text;
}

void s3d_process_set_faults(struct s3d_process *p, const char *rules)
{
    free(s3d_process_ask(p, "PUT", "/_s3d/faults", rules));
}

void s3d_process_set_latency(struct s3d_process *p, const char *spec)
{
    free(s3d_process_ask(p, "PUT", "/_s3d/latency", spec));
}

void s3d_process_reset_counters(struct s3d_process *p)
{
    free(s3d_process_ask(p, "POST", "/_s3d/reset", ""));
}

uint64_t s3d_process_counter(struct s3d_process *p, const char *name)
{
    char *text = s3d_process_ask(p, "GET", "/_s3d/counters", "");
    json_t *root = json_loads(text, 0, NULL), *at = root;
    char part[64];
    uint64_t value;

    while (at && *name) {
        size_t len = strcspn(name, ".");

        snprintf(part, sizeof(part), "%.*s", (int)len, name);
        at = json_object_get(at, part);
        name += len + (name[len] == '.');
    }
    value = (uint64_t)json_integer_value(at);
    json_decref(root);
    free(text);
    return value;
}
