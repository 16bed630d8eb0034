/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The server side of a TCP store that is a master. */
#include "store/tcp/master.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/reader.h"
#include "fakes/resolver.h"
#include "net/connect.h"
#include "net/socket.h"
#include "ports.h"
#include "tcp_fixture.h"

static dl_tcp_store_options
master_options(uint16_t port, bool multi_tenant)
{
    dl_tcp_store_options options = plain_client;

    options.port = port;
    options.is_master = true;
    options.multi_tenant = multi_tenant;
    return options;
}

static dl_status
try_store(dl_tcp_store_options options, dl_store **store)
{
    return dl_tcp_store_new(&options, SOON, store);
}

static bool
is_reachable(const char *host, uint16_t port)
{
    int fd = -1;
    dl_status status = dl_socket_connect_once(host, port, SOON, NULL, &fd);

    dl_socket_close(fd);
    return status == DL_OK;
}

static void
check_describes(dl_store *store, const char *part)
{
    dl_buffer text = {0};

    dl_tcp_store_describe(store, &text);
    dl_put_u8(&text, 0);
    CHECK_OK(dl_buffer_check(&text));
    CHECK_CONTAINS((const char *)text.data, part);
    dl_buffer_fini(&text);
}

CHECK_CASE(a_port_is_picked_and_everything_said_is_kept)
{
    for (int libuv = 0; libuv < 2; libuv++) {
        char expected[64];
        dl_store *store = make_master(0, libuv);
        uint16_t port = dl_tcp_store_port(store);
        CHECK(port != 0);
        CHECK_TEXT(dl_tcp_store_host(store), "127.0.0.1");
        CHECK_EQUAL(dl_tcp_store_uses_libuv(store), libuv);
        CHECK_EQUAL(dl_store_timeout(store), plain_client.timeout);
        snprintf(expected, sizeof expected, "server=TCPServer(port=%u))", port);
        check_describes(store, expected);
        dl_store *client = make_client(port);
        check_describes(client, "TCPStore(client=TCPClient(");
        snprintf(expected, sizeof expected, "remote=127.0.0.1:%u)", port);
        check_describes(client, expected);
        check_describes(client, "server=<nullptr>)");
        dl_store_close(client);
        check_describes(client, "not connected");
        dl_store_unref(client);
        dl_store_unref(store);
    }
}

CHECK_CASE(a_master_listens_at_its_host_and_a_wildcard_everywhere)
{
    const char *wildcards[] = {"", "0.0.0.0", "::"};
    dl_tcp_store_options options = master_options(0, false);

    for (int i = 0; i < 3; i++) {
        options.host = wildcards[i];
        dl_store *store = make_store(options);
        CHECK_TEXT(dl_tcp_store_host(store), wildcards[i]);
        CHECK(is_reachable("127.0.0.4", dl_tcp_store_port(store)));
        CHECK(is_reachable("::1", dl_tcp_store_port(store)));
        check_set(store, "a", "1");
        dl_store_unref(store);
    }
    options.port = reserve_port();
    options.host = "::1";
    dl_store *store = make_store(options);
    CHECK(!is_reachable("127.0.0.1", dl_tcp_store_port(store)));
    check_set(store, "a", "1");
    dl_store_unref(store);
    fake_names = (fake_resolver){.host = "localhost", .addresses = {"127.0.0.5"}};
    options.host = "localhost";
    store = make_store(options);
    CHECK(is_reachable("127.0.0.5", dl_tcp_store_port(store)));
    CHECK(!is_reachable("127.0.0.1", dl_tcp_store_port(store)));
    check_set(store, "a", "1");
    dl_store_unref(store);
}

CHECK_CASE(a_port_in_use_is_an_error)
{
    for (int libuv = 0; libuv < 2; libuv++) {
        dl_store *first = make_master(0, libuv), *second = NULL;
        dl_tcp_store_options options = master_options(dl_tcp_store_port(first), false);
        options.use_libuv = libuv;
        CHECK_STATUS(try_store(options, &second), DL_NETWORK);
        CHECK_CONTAINS(dl_last_error()->text,
                       "The server socket has failed to listen on any local network "
                       "address. port: ");
        CHECK_CONTAINS(dl_last_error()->text, "name: EADDRINUSE");
        CHECK(second == NULL);
        dl_store_unref(first);
    }
}

CHECK_CASE(the_port_is_free_when_the_master_has_ended)
{
    uint16_t port = reserve_port();
    dl_store *store = make_master(port, true);

    for (int i = 0; i < 4; i++) {
        check_set(store, "a", "1");
        dl_store_unref(store);
        CHECK(!is_reachable("127.0.0.1", port));
        store = make_master(port, i % 2 == 0);
    }
    dl_store_unref(store);
}

CHECK_CASE(tenants_share_a_server_until_the_last_leaves)
{
    uint16_t port = reserve_port();
    dl_store *first = make_store(master_options(port, true));
    dl_store *second = make_store(master_options(port, true));

    CHECK_EQUAL(dl_tcp_store_port(second), port);
    check_set(first, "a", "1");
    check_get(second, "a", "1");
    check_describes(second, "server=TCPServer(port=");
    dl_store_unref(first);
    check_get(second, "a", "1");
    dl_store *third = make_store(master_options(port, true));
    dl_store_unref(second);
    check_get(third, "a", "1");
    dl_store_unref(third);
    CHECK(!is_reachable("127.0.0.1", port));
}

CHECK_CASE(both_must_be_tenants_to_share)
{
    dl_store *store = NULL;
    dl_store *owner = make_store(master_options(0, false));
    dl_store *tenant = make_store(master_options(0, true));

    CHECK_STATUS(try_store(master_options(dl_tcp_store_port(owner), true), &store),
                 DL_NETWORK);
    CHECK_STATUS(try_store(master_options(dl_tcp_store_port(tenant), false), &store),
                 DL_NETWORK);
    dl_store_unref(owner);
    dl_store_unref(tenant);
}

CHECK_CASE(a_child_does_not_share_its_parents_server)
{
    dl_store *store = make_store(master_options(0, true)), *own = NULL;
    int status;

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_STATUS(try_store(master_options(dl_tcp_store_port(store), true), &own),
                     DL_NETWORK);
        CHECK_CONTAINS(dl_last_error()->text, "EADDRINUSE");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    dl_store_unref(store);
}

CHECK_CASE(the_launchers_agent_may_have_the_port)
{
    dl_store *agent = make_master(0, true);
    uint16_t port = dl_tcp_store_port(agent);
    dl_store *store = NULL;
    char text[16];

    snprintf(text, sizeof text, "%u", port);
    setenv("MASTER_PORT", text, 1);
    CHECK_STATUS(try_store(master_options(port, false), &store), DL_NETWORK);
    const char *words[] = {"1", "True", "yes"};
    for (int i = 0; i < 3; i++) {
        setenv("TORCHELASTIC_USE_AGENT_STORE", words[i], 1);
        dl_tcp_store_options options = master_options(port, false);
        /* A store that is not the server does not wait for workers. */
        options.world_size = 5;
        CHECK_OK(try_store(options, &store));
        check_describes(store, "server=<nullptr>");
        check_set(store, "a", "1");
        check_get(agent, "a", "1");
        dl_store_unref(store);
    }
    setenv("TORCHELASTIC_USE_AGENT_STORE", "0", 1);
    CHECK_STATUS(try_store(master_options(port, false), &store), DL_NETWORK);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "1", 1);
    setenv("MASTER_PORT", "1", 1);
    CHECK_STATUS(try_store(master_options(port, false), &store), DL_NETWORK);
    dl_store_unref(agent);
}

static int
bind_somewhere(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(reserve_port()),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(fd >= 0);
    dl_socket_set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

CHECK_CASE(a_bound_socket_becomes_the_servers)
{
    for (int libuv = 0; libuv < 2; libuv++) {
        int fd = bind_somewhere();
        uint16_t bound = dl_socket_port(fd);
        dl_tcp_store_options options = master_options(libuv ? bound : 0, false);
        options.use_libuv = libuv;
        options.listen_fd = fd;
        dl_store *store = make_store(options);
        CHECK_EQUAL(dl_tcp_store_port(store), bound);
        check_set(store, "a", "1");
        dl_store_unref(store);
        CHECK(fcntl(fd, F_GETFD) < 0);
        CHECK(!is_reachable("127.0.0.1", bound));
    }
}

CHECK_CASE(a_socket_that_does_not_fit_is_taken_and_reported)
{
    int fd = bind_somewhere();
    dl_store *store = NULL;
    dl_tcp_store_options options =
        master_options((uint16_t)(dl_socket_port(fd) ^ 1), false);

    options.listen_fd = fd;
    CHECK_STATUS(try_store(options, &store), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "expected to be bound to port");
    CHECK(fcntl(fd, F_GETFD) < 0);
    options.listen_fd = 999;
    CHECK_STATUS(try_store(options, &store), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "name: EBADF");
}

CHECK_CASE(a_socket_for_nothing_is_closed)
{
    dl_store *master = make_master(0, true);
    dl_store *tenant = make_store(master_options(0, true));
    dl_tcp_store_options options = plain_client;

    options.port = dl_tcp_store_port(master);
    options.listen_fd = bind_somewhere();
    uint16_t bound = dl_socket_port(options.listen_fd);
    dl_store *client = make_store(options);
    /* Another socket may have its number by now. */
    CHECK(dl_socket_port(options.listen_fd) != bound);
    options = master_options(dl_tcp_store_port(tenant), true);
    options.listen_fd = bind_somewhere();
    bound = dl_socket_port(options.listen_fd);
    dl_store *other = make_store(options);
    CHECK(dl_socket_port(options.listen_fd) != bound);
    dl_store_unref(other);
    dl_store_unref(client);
    dl_store_unref(tenant);
    dl_store_unref(master);
}

CHECK_CASE(stopping_no_master_does_nothing)
{
    dl_master_stop(NULL);
}
