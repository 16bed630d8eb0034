/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/life_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "net/interface.h"

static dl_address
address_of(const char *host)
{
    dl_address address = {.size = sizeof address.socket.ip4};

    address.socket.ip4.sin_family = AF_INET;
    CHECK(inet_pton(AF_INET, host, &address.socket.ip4.sin_addr) == 1);
    address.socket.ip4.sin_port = htons(4711); /* that of a listener: not used */
    return address;
}

static bool
answers(dl_address address, uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.socket.ip4.sin_port = htons(port);
    CHECK(fd >= 0);
    bool is_open = connect(fd, &address.socket.any, address.size) == 0;
    CHECK(is_open || errno == ECONNREFUSED);
    close(fd);
    return is_open;
}

CHECK_CASE(a_port_is_shared_and_ends_with_its_last_user)
{
    dl_address here = address_of("127.0.0.1");
    dl_address there = address_of("127.0.0.2");
    uint16_t port = dl_life_port_open(&here);

    CHECK(port != 0 && answers(here, port));
    CHECK_EQUAL(dl_life_port_open(&here), port);
    uint16_t other = dl_life_port_open(&there);
    CHECK(other != 0 && answers(there, other) && !answers(there, port));
    dl_life_port_drop(&here);
    CHECK(answers(here, port));
    dl_life_port_drop(&here);
    CHECK(!answers(here, port) && answers(there, other));
    dl_life_port_drop(&here);
    CHECK(dl_life_port_open(&here) != 0);
}

CHECK_CASE(without_room_there_is_no_port)
{
    char host[32];
    dl_address address;

    for (int i = 1; i <= DL_INTERFACES_LIMIT; i++) {
        snprintf(host, sizeof host, "127.0.1.%d", i);
        address = address_of(host);
        CHECK(dl_life_port_open(&address) != 0);
    }
    dl_address one_more = address_of("127.0.2.1");
    CHECK_EQUAL(dl_life_port_open(&one_more), 0);
    dl_life_port_drop(&one_more);
    dl_life_port_drop(&address);
    CHECK(dl_life_port_open(&one_more) != 0);
    address = address_of("203.0.113.1"); /* of no interface here */
    CHECK_EQUAL(dl_life_port_open(&address), 0);
}

/* The port tells that its own process lives, and nothing of children. */
CHECK_CASE(a_forked_child_has_a_port_of_its_own)
{
    dl_address here = address_of("127.0.0.1");
    uint16_t port = dl_life_port_open(&here);
    int up[2];
    int down[2];
    char byte = 'x';
    int status;

    CHECK(pipe(up) == 0 && pipe(down) == 0);
    pid_t child = fork();
    if (child == 0) {
        bool has_own = dl_life_port_open(&here) != port;
        close(down[1]);
        bool is_told = write(up[1], &byte, 1) == 1;
        /* Until the parent has closed its end of the pipe. */
        _exit(is_told && has_own && read(down[0], &byte, 1) == 0 ? 0 : 1);
    }
    CHECK(read(up[0], &byte, 1) == 1);
    dl_life_port_drop(&here);
    CHECK(!answers(here, port));
    close(down[1]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status)
          && WEXITSTATUS(status) == 0);
}
