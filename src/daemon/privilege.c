// SPDX-License-Identifier: Apache-2.0
#include "daemon/privilege.h"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORKER_USER "os2g"
#define NOBODY      65534

void privilege_worker_ids(uid_t *ret_uid, gid_t *ret_gid)
{
    const struct passwd *p;

    *ret_uid = getuid();
    *ret_gid = getgid();
    if (geteuid() != 0)
        return;
    p = getpwnam(WORKER_USER);
    if (!p)
        p = getpwnam("nobody");
    *ret_uid = p ? p->pw_uid : NOBODY;
    *ret_gid = p ? p->pw_gid : NOBODY;
}

static int clear_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
        syscall(SYS_capset, &header, none) < 0)
        return -errno;
    return 0;
}

int privilege_drop(uid_t uid, gid_t gid)
{
    int rc;

    if (geteuid() == 0) {
        // the bounding set first: it takes a capability to empty it
        for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
            if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EPERM)
                return -errno;
        if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
            return -errno;
    }
    rc = clear_capabilities();
    if (rc < 0)
        return rc;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return 0;
}
