// SPDX-License-Identifier: Apache-2.0
#include "daemon/export.h"

#include "gdd/engine.h"

#include <string.h>

// Larger values help no sequential reader (our own windows are ahead of it), and a page fault in
// a mapped file reads this much around it.
#define KERNEL_READAHEAD ((uint32_t)(4 * MIB))
#define MAX_BACKGROUND   128

int export_build(struct export *e, struct loop *l, struct export_options *o,
                 struct credentials_resolver *resolver, const char *profile_json, int nodes_fd,
                 int handles_fd, char **ret_error)
{
    struct credentials_config credentials;
    struct cache_config cache;
    struct fs_options fs;
    int rc;

    e->loop = l;
    e->options = o;
    session_table_init(&e->hosts);
    rc = s3_settings_complete(&o->s3, profile_json, ret_error);
    if (rc < 0)
        return rc;
    credentials = export_options_credentials(o);
    rc = credentials_provider_new(&e->provider, l, &credentials, resolver);
    if (rc < 0) {
        *ret_error = xasprintf("no credentials can be had: %s", strerror(-rc));
        return rc;
    }
    rc = s3_bucket_new(&e->bucket, &o->s3, e->provider, ret_error);
    if (rc < 0)
        return rc;
    cache = (struct cache_config){
        .memory = o->memory,
        .data_loops = o->threads,
        .loop = o->threads == 1 && base_cores() == 1 ? l : NULL,
        .bucket = e->bucket,
        .shared = engine_possible(),
    };
    rc = cache_new(&e->cache, &cache, ret_error);
    if (rc < 0)
        return rc;
    fs = (struct fs_options){
        .prefix = o->prefix,
        .uid = o->uid,
        .gid = o->gid,
        .file_mode = o->file_mode,
        .gdd_gid = o->gdd_group,
        .dir_mode = o->dir_mode,
        .metadata_ttl_ns = o->metadata_ttl_ns,
        .negative_ttl_ns = o->negative_ttl_ns,
        .direct_io = o->direct_io,
        .readahead_max = o->read_ahead,
        .no_readahead = o->no_read_ahead,
        .metadata_memory = o->metadata_memory,
        .nodes_fd = nodes_fd,
        .handles_fd = handles_fd,
    };
    return fs_new(&e->fs, l, &fs, e->bucket, e->cache, ret_error);
}

int export_serve(struct export *e, int fuse_fd, int slots_fd, void (*gone)(void *arg), void *arg,
                 char **ret_error)
{
    const struct devfuse_config config = {
        .ops = fs_ops(),
        .fs = e->fs,
        .fuse_fd = fuse_fd,
        .slots_fd = slots_fd,
        .max_readahead = KERNEL_READAHEAD,
        .max_background = MAX_BACKGROUND,
        .allow_root = e->options->allow_root,
        .owner_uid = e->options->mounter,
        .gone = gone,
        .arg = arg,
    };
    int rc = devfuse_new(&e->wire, e->loop, &config);

    if (rc < 0)
        *ret_error = xasprintf("requests of the mount cannot be read: %s", strerror(-rc));
    return rc;
}

int export_serve_hosts(struct export *e, int life_fd,
                       void (*event)(void *arg, const struct vhost_event *ev), void *arg,
                       char **ret_error)
{
    const struct s3_settings *s3 = &e->options->s3;
    struct vhost_config config = {
        .ops = fs_ops(),
        .fs = e->fs,
        .cache = e->cache,
        .max_readahead = KERNEL_READAHEAD,
        .max_background = MAX_BACKGROUND,
        .gpu_memory = e->options->gpu_memory,
        .n_gpu_memory = e->options->n_gpu_memory,
        .helper_program = "/proc/self/exe",
        .life_fd = life_fd,
        .endpoint = s3->endpoint_url,
        .event = event,
        .arg = arg,
    };
    int rc;

    e->source = xasprintf("s3://%s/%s", s3->bucket, e->options->prefix);
    config.source = e->source;
    rc = vhost_new(&e->vhost, e->loop, &config);
    if (rc < 0)
        *ret_error = xasprintf("requests of hosts cannot be read: %s", strerror(-rc));
    return rc;
}

void export_command(struct export *e, const struct vhost_command *c, int fd)
{
    session_table_note(&e->hosts, c);
    vhost_command(e->vhost, c, fd);
}
