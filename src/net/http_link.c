// SPDX-License-Identifier: Apache-2.0
// Each link has a multi handle of its own while it needs libcurl. In a shared one, libcurl would
// look after connections that it believes idle (all of ours, from its view) whenever a new one is
// made, and close those that look dead or old: under our hands.
#include "net/http_link.h"

#include "base/clock.h"
#include "net/http_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

struct http_link {
    struct http_link_env *env;
    CURL *easy; // NULL once the socket is ours alone
    CURLM *multi;
    CURLU *url;
    struct loop_timer timer; // libcurl's, while connecting
    struct list watches;     // sockets that libcurl watches, while connecting
    bool tls;                // to the server or to the proxy
    bool bad_certificate;
    bool owns_fd;
    int fd;
    void (*fn)(struct http_link *link, int error, void *arg);
    void *arg;
    char peer[64];
    char error_text[CURL_ERROR_SIZE];
};

struct watch {
    struct list link;
    struct http_link *owner;
    struct loop_io *io;
    curl_socket_t fd;
};

static void drive(struct http_link *link, curl_socket_t fd, int bits);

// --- connecting: libcurl's timer and sockets on our loop ---

static void on_timer(struct loop_timer *t)
{
    drive(container_of(t, struct http_link, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int set_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct http_link *link = arg;

    if (timeout_ms < 0)
        loop_timer_stop(&link->timer);
    else
        loop_timer_start_ns(&link->timer, (uint64_t)timeout_ms * NS_PER_MS);
    return 0;
}

static void on_watch(struct loop_io *io, unsigned events, void *arg)
{
    struct watch *w = arg;

    drive(w->owner, w->fd,
          (events & LOOP_READ ? CURL_CSELECT_IN : 0) |
              (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0));
}

static void watch_free(struct watch *w)
{
    list_remove(&w->link);
    loop_io_free(w->io);
    free(w);
}

static int set_watch(CURL *easy, curl_socket_t fd, int what, void *arg, void *fd_arg)
{
    struct http_link *link = arg;
    struct watch *w = fd_arg;

    if (what == CURL_POLL_REMOVE) {
        if (w)
            watch_free(w);
        return 0;
    }
    if (!w) {
        w = xcalloc(1, sizeof(*w));
        w->owner = link;
        w->fd = fd;
        if (loop_io_new(&w->io, link->env->loop, fd, on_watch, w) < 0) {
            free(w);
            return -1;
        }
        list_push_back(&link->watches, &w->link);
        curl_multi_assign(link->multi, fd, w);
    }
    loop_io_want(w->io,
                 (what & CURL_POLL_IN ? LOOP_READ : 0) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0));
    return 0;
}

static int close_socket(void *arg, curl_socket_t fd)
{
    struct http_link *link = arg;

    return link->owns_fd && fd == link->fd ? 0 : close(fd);
}

static void stop_watching(struct http_link *link)
{
    list_for_each_safe (it, &link->watches)
        watch_free(list_entry(it, struct watch, link));
    loop_timer_stop(&link->timer);
}

static void drop_curl(struct http_link *link)
{
    if (link->easy) {
        curl_multi_remove_handle(link->multi, link->easy);
        curl_easy_cleanup(link->easy);
    }
    if (link->multi)
        curl_multi_cleanup(link->multi);
    curl_url_cleanup(link->url);
    link->easy = NULL;
    link->multi = NULL;
    link->url = NULL;
    stop_watching(link);
}

static int os_error(CURL *easy)
{
    long os = 0;

    curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os);
    switch (os) {
    case ECONNREFUSED:
    case ETIMEDOUT:
    case ECONNRESET:
        return (int)-os;
    default:
        return -EHOSTUNREACH;
    }
}

static int map_error(struct http_link *link, CURLcode code)
{
    if (code != CURLE_OK && link->bad_certificate)
        return -EKEYREJECTED;
    switch (code) {
    case CURLE_OK:
        return 0;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_URL_MALFORMAT:
        return -ENOENT;
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_INVALIDCERTSTATUS:
        return -EKEYREJECTED;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
        return -ECONNRESET;
    default:
        return os_error(link->easy);
    }
}

static void note_peer(struct http_link *link)
{
    const char *ip = NULL;
    long port = 0;

    curl_easy_getinfo(link->easy, CURLINFO_PRIMARY_IP, &ip);
    curl_easy_getinfo(link->easy, CURLINFO_PRIMARY_PORT, &port);
    if (ip)
        snprintf(link->peer, sizeof(link->peer), strchr(ip, ':') ? "[%s]:%ld" : "%s:%ld", ip, port);
}

static void finish(struct http_link *link, CURLcode code)
{
    int error = map_error(link, code);
    curl_socket_t fd = CURL_SOCKET_BAD;

    stop_watching(link);
    if (error < 0) {
        if (!link->error_text[0])
            snprintf(link->error_text, sizeof(link->error_text), "%s", curl_easy_strerror(code));
    } else {
        curl_easy_getinfo(link->easy, CURLINFO_ACTIVESOCKET, &fd);
        link->fd = fd;
        note_peer(link);
        if (!link->tls) {
            link->owns_fd = true;
            drop_curl(link);
        }
    }
    link->fn(link, error, link->arg);
}

static void drive(struct http_link *link, curl_socket_t fd, int bits)
{
    int running, left;
    CURLMsg *msg;

    if (curl_multi_socket_action(link->multi, fd, bits, &running) != CURLM_OK) {
        finish(link, CURLE_FAILED_INIT);
        return;
    }
    while ((msg = curl_multi_info_read(link->multi, &left))) {
        if (msg->msg == CURLMSG_DONE) {
            finish(link, msg->data.result);
            return;
        }
    }
}

// --- set-up ---

// libcurl does not tell every way in which a certificate can be wrong from a broken connection.
static int on_verified(int ok, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct http_link *link = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

    link->bad_certificate = link->bad_certificate || !ok;
    return ok;
}

static CURLcode set_up_tls(CURL *easy, void *ssl_ctx, void *arg)
{
    struct http_link *link = arg;

    SSL_CTX_set1_cert_store(ssl_ctx, link->env->trust);
    SSL_CTX_set_app_data(ssl_ctx, link);
    SSL_CTX_set_verify(ssl_ctx, SSL_VERIFY_PEER, on_verified);
    return CURLE_OK;
}

static int make_url(struct http_link *link, bool tls, const char *host, uint16_t port)
{
    char *name = strchr(host, ':') ? xasprintf("[%s]", host) : xstrdup(host);
    char digits[8];
    int rc = 0;

    snprintf(digits, sizeof(digits), "%u", port);
    link->url = curl_url();
    if (!link->url || curl_url_set(link->url, CURLUPART_SCHEME, tls ? "https" : "http", 0) ||
        curl_url_set(link->url, CURLUPART_HOST, name, 0) ||
        curl_url_set(link->url, CURLUPART_PORT, digits, 0) ||
        curl_url_set(link->url, CURLUPART_PATH, "/", 0))
        rc = -EINVAL;
    free(name);
    return rc;
}

int http_ca_file_check(const char *path, char **ret_error)
{
    X509_STORE *trust = X509_STORE_new();
    int rc = 0;

    if (access(path, R_OK) < 0) {
        rc = -errno;
        *ret_error = xasprintf("the file of trusted authorities (--ca-file, AWS_CA_BUNDLE or the "
                               "profile's ca_bundle) cannot be read: %s: %s",
                               path, strerror(-rc));
    } else if (trust && X509_STORE_load_file(trust, path) != 1) {
        rc = -EINVAL;
        *ret_error = xasprintf("the file of trusted authorities (--ca-file, AWS_CA_BUNDLE or the "
                               "profile's ca_bundle) has no certificate in PEM: %s",
                               path);
    }
    ERR_clear_error();
    X509_STORE_free(trust);
    return rc;
}

int http_proxy_check(const char *url, char **ret_error)
{
    CURLU *u = curl_url();
    int rc = 0;

    if (u && *url && curl_url_set(u, CURLUPART_URL, url, CURLU_GUESS_SCHEME) != CURLUE_OK) {
        rc = -EINVAL;
        *ret_error = xasprintf("the proxy \"%s\" is not a URL: write http://HOST:PORT", url);
    }
    curl_url_cleanup(u);
    return rc;
}

static int load_trust(struct http_link_env *env, const char *ca_file)
{
    X509_STORE *trust = X509_STORE_new();

    if (!trust)
        return -ENOMEM;
    if (!ca_file || X509_STORE_load_file(trust, ca_file) != 1) {
        X509_STORE_free(trust);
        return -EINVAL;
    }
    env->trust = trust;
    return 0;
}

// The system's authorities take a while to read: not before TLS is used.
static int need_trust(struct http_link_env *env)
{
    return env->trust ? 0 : load_trust(env, curl_version_info(CURLVERSION_NOW)->cainfo);
}

// Whether the way to the proxy, if there is one, might be TLS.
static bool proxy_is_tls(const struct http_link_env *env)
{
    static const char *const names[] = {"http_proxy", "all_proxy", "ALL_PROXY"};

    if (env->proxy)
        return !strncasecmp(env->proxy, "https:", 6);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i]);

        if (value && !strncasecmp(value, "https:", 6))
            return true;
    }
    return false;
}

static CURLcode set_options(struct http_link *link)
{
    const struct http_link_env *env = link->env;
    CURL *e = link->easy;
    CURLcode rc = CURLE_OK;

#define SET(option, value) rc = rc ? rc : curl_easy_setopt(e, option, value)
    SET(CURLOPT_CURLU, link->url);
    SET(CURLOPT_CONNECT_ONLY, 1L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_ERRORBUFFER, link->error_text);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)MAX(env->connect_timeout_ns / NS_PER_MS, 1u));
    SET(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_SSL_ENABLE_ALPN, 0L);
    SET(CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_TCP_NODELAY, 1L);
    // the name is looked up for each connection, so that they spread over all its addresses;
    // giving up does not wait for the resolver's thread
    SET(CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L);
    if (env->proxy)
        SET(CURLOPT_PROXY, env->proxy);
    SET(CURLOPT_HTTPPROXYTUNNEL, 1L);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    // not by file: libcurl would read it again for each connection
    SET(CURLOPT_CAINFO, NULL);
    SET(CURLOPT_CAPATH, NULL);
    SET(CURLOPT_PROXY_CAINFO, NULL);
    SET(CURLOPT_PROXY_CAPATH, NULL);
    SET(CURLOPT_SSL_CTX_FUNCTION, set_up_tls);
    SET(CURLOPT_SSL_CTX_DATA, link);
    SET(CURLOPT_SHARE, env->share);
    SET(CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    SET(CURLOPT_CLOSESOCKETDATA, link);
#undef SET
    return rc;
}

int http_link_open(struct http_link **ret, struct http_link_env *env, bool tls, const char *host,
                   uint16_t port, void (*fn)(struct http_link *link, int error, void *arg),
                   void *arg)
{
    struct http_link *link = xcalloc(1, sizeof(*link));
    int rc;

    link->env = env;
    link->tls = tls || proxy_is_tls(env);
    link->fd = -1;
    link->fn = fn;
    link->arg = arg;
    list_init(&link->watches);
    loop_timer_init(&link->timer, env->loop, on_timer);
    rc = make_url(link, tls, host, port);
    if (rc == 0 && link->tls)
        rc = need_trust(env);
    if (rc < 0)
        goto fail;
    rc = -ENOMEM;
    link->easy = curl_easy_init();
    link->multi = curl_multi_init();
    if (!link->easy || !link->multi || set_options(link) != CURLE_OK)
        goto fail;
    curl_multi_setopt(link->multi, CURLMOPT_SOCKETFUNCTION, set_watch);
    curl_multi_setopt(link->multi, CURLMOPT_SOCKETDATA, link);
    curl_multi_setopt(link->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(link->multi, CURLMOPT_TIMERDATA, link);
    if (curl_multi_add_handle(link->multi, link->easy) != CURLM_OK)
        goto fail;
    *ret = link;
    return 0;

fail:
    http_link_close(link);
    return rc;
}

void http_link_close(struct http_link *link)
{
    if (!link)
        return;
    drop_curl(link);
    if (link->owns_fd)
        close(link->fd);
    free(link);
}

int http_link_env_init(struct http_link_env *env, struct loop *l, const char *ca_file,
                       const char *proxy, uint64_t connect_timeout_ns)
{
    int rc = -ENOMEM;

    *env = (struct http_link_env){.loop = l, .connect_timeout_ns = connect_timeout_ns};
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return -ENOMEM;
    env->proxy = proxy ? xstrdup(proxy) : NULL;
    env->share = curl_share_init();
    if (!env->share ||
        curl_share_setopt(env->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) != CURLSHE_OK)
        goto fail;
    if (ca_file && access(ca_file, R_OK) < 0) {
        rc = -errno;
        goto fail;
    }
    rc = ca_file ? load_trust(env, ca_file) : 0;
    if (rc < 0)
        goto fail;
    return 0;

fail:
    http_link_env_fini(env);
    return rc;
}

void http_link_env_fini(struct http_link_env *env)
{
    X509_STORE_free(env->trust);
    curl_share_cleanup(env->share);
    free(env->proxy);
    curl_global_cleanup();
}

// --- connected ---

int http_link_fd(const struct http_link *link)
{
    return link->fd;
}

const char *http_link_peer(const struct http_link *link)
{
    return link->peer;
}

bool http_link_buffers(const struct http_link *link)
{
    return link->easy != NULL;
}

const char *http_link_error_text(const struct http_link *link)
{
    return link->error_text;
}

// libcurl shows an end without close_notify like any other, but anybody on the way could bring
// that about.
static bool tls_ended_properly(struct http_link *link)
{
    struct curl_tlssessioninfo *info = NULL;

    curl_easy_getinfo(link->easy, CURLINFO_TLS_SSL_PTR, &info);
    return info && info->internals && SSL_get_shutdown(info->internals) & SSL_RECEIVED_SHUTDOWN;
}

// What came before an end or an error is reported first; the next call meets it again.
static ssize_t tls_recv(struct http_link *link, const struct iovec *iov, int n)
{
    size_t total = 0;

    for (int i = 0; i < n; i++) {
        size_t at = 0, got;

        while (at < iov[i].iov_len) {
            CURLcode rc =
                curl_easy_recv(link->easy, (char *)iov[i].iov_base + at, iov[i].iov_len - at, &got);

            if (rc == CURLE_AGAIN)
                return total ? (ssize_t)total : -EAGAIN;
            if (rc != CURLE_OK)
                return total ? (ssize_t)total : -ECONNRESET;
            if (got == 0)
                return total || tls_ended_properly(link) ? (ssize_t)total : -ECONNRESET;
            at += got;
            total += got;
        }
    }
    return (ssize_t)total;
}

static ssize_t tls_send(struct http_link *link, const struct iovec *iov, int n)
{
    size_t total = 0;

    for (int i = 0; i < n; i++) {
        size_t at = 0, put;

        while (at < iov[i].iov_len) {
            CURLcode rc =
                curl_easy_send(link->easy, (char *)iov[i].iov_base + at, iov[i].iov_len - at, &put);

            if (rc == CURLE_AGAIN)
                return total ? (ssize_t)total : -EAGAIN;
            if (rc != CURLE_OK)
                return total ? (ssize_t)total : -EPIPE;
            at += put;
            total += put;
        }
    }
    return (ssize_t)total;
}

ssize_t http_link_recv(struct http_link *link, const struct iovec *iov, int n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    ssize_t got;

    if (link->easy)
        return tls_recv(link, iov, n);
    do
        got = recvmsg(link->fd, &msg, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

ssize_t http_link_send(struct http_link *link, const struct iovec *iov, int n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    ssize_t put;

    if (link->easy)
        return tls_send(link, iov, n);
    do
        put = sendmsg(link->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    return put < 0 ? -errno : put;
}
