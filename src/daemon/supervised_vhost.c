// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervised_vhost.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/rendezvous.h"
#include "front/vhost/link.h"
#include "front/vhost/vhost.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SESSIONS_MAX 256
#define ACCEPTS_MAX  16 // in one turn
#define DEAF_NS      NS_PER_S

struct session {
    struct list link; // of supervised_vhost.sessions
    struct supervised_vhost *vhost;
    struct vhost_link *of;
    uint32_t number;
    pid_t pid;
    bool told;  // the worker has been, of all that there was
    bool known; // some worker has been
    unsigned descriptors;
};

// Of a session that has ended: what its host held is in its memory, and has to be given back by
// this worker or the next. A host that is still there sees the end of its connection when nothing
// can land in its memory any more.
struct leaving {
    struct list link; // of supervised_vhost.leaving
    uint32_t number;
    int memory_fd;
    int socket_fd; // or -1
    bool told;
};

// Of the SESSION_REMOVE; links number theirs from 1 on.
#define LEAVING_SEQ UINT64_MAX

// Held for the hosts of all exports: a host must not be able to use up what this process needs to
// start workers.
static unsigned descriptors_held;

static unsigned descriptors_max(void)
{
    struct rlimit r;

    return getrlimit(RLIMIT_NOFILE, &r) < 0 ? 256 : (unsigned)MIN(r.rlim_cur / 2, 1u << 20);
}

void supervised_vhost_init(struct supervised_vhost *v)
{
    *v = (struct supervised_vhost){.listener = LISTENER_NONE, .channel = -1};
    list_init(&v->sessions);
    list_init(&v->leaving);
    channel_queue_init(&v->queue);
}

// --- to the worker ---

static bool on_send(void *arg, const struct vhost_command *c, int fd)
{
    struct session *s = arg;
    struct supervised_vhost *v = s->vhost;

    if (v->channel < 0 || !s->told)
        return false;
    if (channel_queue_command(&v->queue, v->channel, c, fd) < 0)
        v->broken = true; // what is lost is said again to the next one
    return true;
}

// --- sessions that have ended ---

static void leaving_new(struct supervised_vhost *v, struct session *s, bool told)
{
    struct leaving *l = xcalloc(1, sizeof(*l));

    *l = (struct leaving){.number = s->number, .socket_fd = -1, .told = told};
    l->memory_fd = vhost_link_take_memory(s->of);
    if (told)
        l->socket_fd = vhost_link_take_socket(s->of);
    list_push_back(&v->leaving, &l->link);
    v->n_leaving++;
}

static void leaving_hang_up(struct leaving *l)
{
    if (l->socket_fd >= 0)
        close(l->socket_fd);
    l->socket_fd = -1;
}

static void leaving_free(struct supervised_vhost *v, struct leaving *l)
{
    leaving_hang_up(l);
    close(l->memory_fd);
    list_remove(&l->link);
    free(l);
    v->n_leaving--;
}

static void say_remove(struct supervised_vhost *v, uint32_t session)
{
    const struct vhost_command c = {
        .kind = VHOST_SESSION_REMOVE, .session = session, .seq = LEAVING_SEQ};

    if (channel_queue_command(&v->queue, v->channel, &c, -1) < 0)
        v->broken = true;
}

// To a worker that has not heard of it.
static void leaving_tell(struct supervised_vhost *v, struct leaving *l)
{
    const struct vhost_command c = {.kind = VHOST_SESSION_ADD, .session = l->number};

    l->told = true;
    if (channel_queue_command(&v->queue, v->channel, &c, l->memory_fd) < 0)
        v->broken = true;
    else
        say_remove(v, l->number);
}

static void leaving_event(struct supervised_vhost *v, const struct vhost_event *e)
{
    list_for_each_safe (it, &v->leaving) {
        struct leaving *l = list_entry(it, struct leaving, link);

        if (e->kind == VHOST_DONE && e->seq == LEAVING_SEQ && e->session == l->number)
            leaving_free(v, l);
    }
}

// --- sessions ---

static void count_descriptors(struct session *s)
{
    struct vhost_link_stats stats;

    vhost_link_stats_read(s->of, &stats);
    descriptors_held += stats.descriptors - s->descriptors;
    s->descriptors = stats.descriptors;
}

static void session_end(struct session *s, const char *why)
{
    struct supervised_vhost *v = s->vhost;
    bool told = v->channel >= 0 && s->told;

    if (why)
        log_warning("daemon", "%s: session %u (process %d) is ended: %s",
                    export_options_place(v->options), s->number, (int)s->pid, why);
    else
        log_debug("daemon", "%s: session %u (process %d) has ended",
                  export_options_place(v->options), s->number, (int)s->pid);
    if (told)
        say_remove(v, s->number);
    if (s->known)
        leaving_new(v, s, told);
    vhost_link_free(s->of);
    descriptors_held -= s->descriptors;
    list_remove(&s->link);
    free(s);
    if (--v->n_sessions == 0)
        v->idle_since_ns = clock_monotonic_ns();
}

// What a call of the link returned.
static void session_result(struct session *s, int rc, char *why)
{
    if (rc == 0) {
        count_descriptors(s);
        if (descriptors_held > descriptors_max()) {
            rc = -EMFILE;
            why = xstrdup("more descriptors are held for hosts than this process has room for");
        }
    }
    if (rc < 0)
        session_end(s, why);
    free(why);
}

static int make_memory(void)
{
    int fd = memfd_create("os2g-session", MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, (off_t)vhost_session_bytes()) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool is_allowed(const struct export_options *o, uid_t uid)
{
    for (size_t i = 0; i < o->n_socket_allow; i++)
        if (o->socket_allow[i] == uid)
            return true;
    if (o->n_socket_allow)
        return false;
    // those of the group are let in by the file's mode, which was asked for
    return uid == 0 || uid == o->mounter || o->socket_group != UINT32_MAX;
}

// fd becomes the session's.
static void session_new(struct supervised_vhost *v, int fd, const struct ucred *peer)
{
    struct session *s = xcalloc(1, sizeof(*s));
    const struct vhost_link_config config = {
        .fd = fd,
        .session = ++v->last_session,
        .uid = peer->uid,
        .gid = peer->gid,
        .pid = (uint32_t)peer->pid,
        .memory_fd = make_memory(),
        .tag = v->options->socket_tag,
        .send = on_send,
        .arg = s,
    };

    if (config.memory_fd < 0) {
        log_error("daemon", "%s: no memory for a session: %s", export_options_place(v->options),
                  strerror(errno));
        close(fd);
        free(s);
        return;
    }
    s->vhost = v;
    s->number = config.session;
    s->pid = peer->pid;
    s->told = s->known = v->channel >= 0;
    list_push_back(&v->sessions, &s->link);
    v->n_sessions++;
    s->of = vhost_link_new(&config);
    log_debug("daemon", "%s: session %u of process %d, user %u", export_options_place(v->options),
              s->number, (int)s->pid, peer->uid);
    session_result(s, 0, NULL);
}

// False: there are no more.
static bool accept_one(struct supervised_vhost *v)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    int fd = accept4(v->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            log_warning("daemon", "%s: hosts have to wait: %s", export_options_place(v->options),
                        strerror(errno));
            v->deaf_until_ns = clock_monotonic_ns() + DEAF_NS;
        }
        return false;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
        !is_allowed(v->options, peer.uid)) {
        log_warning("daemon", "%s: user %u (process %d) may not connect; socket-allow says who may",
                    v->listener.path, peer.uid, (int)peer.pid);
        close(fd);
    } else if (v->n_sessions + v->n_leaving >= SESSIONS_MAX) {
        log_warning("daemon", "%s: process %d is refused: there are %d sessions", v->listener.path,
                    (int)peer.pid, SESSIONS_MAX);
        close(fd);
    } else {
        session_new(v, fd, &peer);
    }
    return true;
}

// --- workers come and go ---

// Tells the worker of sessions as long as it keeps up.
static void tell(struct supervised_vhost *v)
{
    list_for_each (it, &v->leaving) {
        struct leaving *l = list_entry(it, struct leaving, link);

        if (l->told)
            continue;
        if (v->channel < 0 || v->broken || !channel_queue_empty(&v->queue))
            return;
        leaving_tell(v, l);
    }
    list_for_each_safe (it, &v->sessions) {
        struct session *s = list_entry(it, struct session, link);
        char *why;
        int rc;

        if (s->told)
            continue;
        if (v->channel < 0 || v->broken || !channel_queue_empty(&v->queue))
            return;
        s->told = s->known = true;
        rc = vhost_link_resume(s->of, &why);
        session_result(s, rc, why);
    }
}

void supervised_vhost_worker(struct supervised_vhost *v, int channel)
{
    v->channel = channel;
    v->broken = false;
    tell(v);
}

void supervised_vhost_worker_died(struct supervised_vhost *v)
{
    v->channel = -1;
    v->broken = false;
    channel_queue_clear(&v->queue);
    list_for_each (it, &v->leaving) {
        struct leaving *l = list_entry(it, struct leaving, link);

        leaving_hang_up(l);
        l->told = false;
    }
    list_for_each_safe (it, &v->sessions) {
        struct session *s = list_entry(it, struct session, link);
        char *why;
        int rc;

        s->told = false;
        rc = vhost_link_worker_died(s->of, &why);
        session_result(s, rc, why);
    }
}

void supervised_vhost_event(struct supervised_vhost *v, const struct vhost_event *e)
{
    leaving_event(v, e);
    list_for_each (it, &v->sessions) {
        struct session *s = list_entry(it, struct session, link);
        char *why;
        int rc;

        if (s->number != e->session)
            continue;
        rc = vhost_link_event(s->of, e, &why);
        session_result(s, rc, why);
        return;
    }
}

bool supervised_vhost_waits(const struct supervised_vhost *v)
{
    return !channel_queue_empty(&v->queue);
}

void supervised_vhost_flush(struct supervised_vhost *v)
{
    if (v->channel >= 0 && channel_queue_flush(&v->queue, v->channel) < 0)
        v->broken = true;
    tell(v);
}

// --- what is polled ---

size_t supervised_vhost_poll_count(const struct supervised_vhost *v)
{
    return 1 + v->n_sessions;
}

void supervised_vhost_poll_fill(const struct supervised_vhost *v, struct pollfd *p)
{
    // what a host says now would only wait behind what the worker has not read yet
    bool behind = supervised_vhost_waits(v);

    *p++ = (struct pollfd){
        .fd = behind || v->deaf_until_ns ? -1 : v->listener.fd,
        .events = POLLIN,
    };
    list_for_each (it, &v->sessions) {
        const struct vhost_link *l = list_entry(it, struct session, link)->of;
        short events = vhost_link_events(l);

        *p++ = (struct pollfd){
            .fd = events == 0 || (behind && events == POLLIN) ? -1 : vhost_link_fd(l),
            .events = events,
        };
    }
}

void supervised_vhost_poll_done(struct supervised_vhost *v, const struct pollfd *p)
{
    bool connects = p->revents;

    list_for_each_safe (it, &v->sessions) {
        struct session *s = list_entry(it, struct session, link);
        char *why;
        int rc;

        if (!(++p)->revents)
            continue;
        rc = vhost_link_ready(s->of, &why);
        session_result(s, rc, why);
    }
    for (int i = 0; connects && i < ACCEPTS_MAX; i++)
        connects = accept_one(v);
}

uint64_t supervised_vhost_due_ns(const struct supervised_vhost *v)
{
    return v->deaf_until_ns ? v->deaf_until_ns : UINT64_MAX;
}

void supervised_vhost_time(struct supervised_vhost *v, uint64_t now_ns)
{
    if (now_ns >= v->deaf_until_ns)
        v->deaf_until_ns = 0;
}

// --- life ---

// libos2g looks for a mount's socket where rendezvous_socket() says. If it is not there, a link is.
static void offer_where_looked_for(struct supervised_vhost *v, const char *looked_for)
{
    int rc;

    if (!strcmp(looked_for, v->options->socket))
        return;
    rc = listener_alias(&v->listener, looked_for);
    if (rc < 0)
        log_warning("daemon", "%s: no link to it at %s, programs have to name the socket: %s",
                    v->options->socket, looked_for, strerror(-rc));
}

int supervised_vhost_free_place(const struct export_options *o, char **ret_error)
{
    if (o->directory || !listener_in_use(o->socket))
        return 0;
    *ret_error = xasprintf("socket: somebody else listens at %s", o->socket);
    return -EADDRINUSE;
}

int supervised_vhost_open(struct supervised_vhost *v, const struct export_options *o,
                          char **ret_error)
{
    char *looked_for = o->directory ? rendezvous_socket(o->mounter, o->directory) : NULL;
    bool group = o->socket_group != UINT32_MAX;
    mode_t mode = o->socket_mode != UINT32_MAX ? o->socket_mode : group ? 0660 : 0600;
    int rc;

    v->options = o;
    v->idle_since_ns = clock_monotonic_ns();
    if (looked_for)
        listener_clear_alias(looked_for); // of a daemon that was killed
    if (!export_options_offers_socket(o)) {
        free(looked_for);
        return 0;
    }
    rc = listener_open(&v->listener, o->socket, mode, (uid_t)-1,
                       group ? (gid_t)o->socket_group : (gid_t)-1);
    if (rc == -EADDRINUSE)
        *ret_error = xasprintf("socket: somebody else listens at %s", o->socket);
    else if (rc == -EEXIST)
        *ret_error = xasprintf("socket: %s is there and is no socket", o->socket);
    else if (rc < 0)
        *ret_error = xasprintf("socket: %s cannot be used: %s", o->socket, strerror(-rc));
    else if (looked_for)
        offer_where_looked_for(v, looked_for);
    free(looked_for);
    return rc;
}

void supervised_vhost_stop(struct supervised_vhost *v)
{
    listener_close(&v->listener);
    list_for_each_safe (it, &v->sessions)
        session_end(list_entry(it, struct session, link), NULL);
    v->deaf_until_ns = 0;
}

void supervised_vhost_close(struct supervised_vhost *v)
{
    supervised_vhost_stop(v);
    list_for_each_safe (it, &v->leaving)
        leaving_free(v, list_entry(it, struct leaving, link));
    channel_queue_clear(&v->queue);
    v->channel = -1;
}
