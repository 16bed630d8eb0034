/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/address.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>

#include "check.h"
#include "fakes/interrupts.h"
#include "fakes/resolver.h"

static void
check_text(const char *host, uint16_t port, const char *expected)
{
    char text[DL_ADDRESS_TEXT_SIZE];
    dl_address *addresses;
    size_t count;

    CHECK_OK(dl_address_resolve(host, port, SOON, &addresses, &count));
    CHECK_EQUAL(count, 1);
    dl_address_text(&addresses[0], text);
    CHECK_TEXT(text, expected);
    free(addresses);
}

CHECK_CASE(numeric_hosts_resolve_to_themselves)
{
    check_text("127.0.0.1", 80, "127.0.0.1:80");
    check_text("203.0.113.255", 65535, "203.0.113.255:65535");
    check_text("::1", 0, "[::1]:0");
    check_text("2001:db8::7", 29500, "[2001:db8::7]:29500");
}

CHECK_CASE(numeric_hosts_need_no_time)
{
    dl_address *addresses;
    size_t count;

    CHECK_OK(
        dl_address_resolve("127.0.0.1", 80, dl_deadline_after(0), &addresses, &count));
    free(addresses);
}

CHECK_CASE(mapped_addresses_are_written_as_what_they_are)
{
    check_text("::ffff:192.0.2.1", 80, "192.0.2.1:80");
}

CHECK_CASE(the_longest_text_fits)
{
    char text[DL_ADDRESS_TEXT_SIZE];
    dl_address address = {.socket.ip6 = {.sin6_family = AF_INET6,
                                         .sin6_port = htons(65535),
                                         .sin6_scope_id = UINT32_MAX}};

    memset(&address.socket.ip6.sin6_addr, 0xfe, 16);
    dl_address_text(&address, text);
    CHECK_TEXT(text, "[fefe:fefe:fefe:fefe:fefe:fefe:fefe:fefe%4294967295]:65535");
}

static dl_address
address_of(const char *host, uint16_t port)
{
    dl_address *addresses;
    size_t count;

    CHECK_OK(dl_address_resolve(host, port, SOON, &addresses, &count));
    dl_address address = addresses[0];
    free(addresses);
    return address;
}

CHECK_CASE(addresses_are_equal_when_all_of_them_is)
{
    dl_address same = address_of("192.0.2.1", 80);
    dl_address other_port = address_of("192.0.2.1", 81);
    dl_address other_host = address_of("192.0.2.2", 80);
    dl_address ip6 = address_of("2001:db8::1", 80);
    dl_address ip6_port = address_of("2001:db8::1", 81);
    dl_address ip6_host = address_of("2001:db8::2", 80);

    CHECK(dl_address_equal(&same, &same));
    CHECK(!dl_address_equal(&same, &other_port));
    CHECK(!dl_address_equal(&same, &other_host));
    CHECK(!dl_address_equal(&same, &ip6));
    CHECK(dl_address_equal(&ip6, &ip6));
    CHECK(!dl_address_equal(&ip6, &ip6_port));
    CHECK(!dl_address_equal(&ip6, &ip6_host));
}

CHECK_CASE(wildcards_are_recognised_however_they_are_written)
{
    CHECK(dl_address_is_wildcard(""));
    CHECK(dl_address_is_wildcard("0.0.0.0"));
    CHECK(dl_address_is_wildcard("::"));
    CHECK(dl_address_is_wildcard("0:0:0:0:0:0:0:0"));
    CHECK(!dl_address_is_wildcard("127.0.0.1"));
    CHECK(!dl_address_is_wildcard("::1"));
    CHECK(!dl_address_is_wildcard("localhost"));
}

CHECK_CASE(a_name_gives_all_its_addresses_in_order)
{
    char text[DL_ADDRESS_TEXT_SIZE];
    dl_address *addresses;
    size_t count;

    fake_names = (fake_resolver){.host = "three.example",
                                 .addresses = {"2001:db8::3", "192.0.2.3", "::1"}};
    CHECK_OK(dl_address_resolve("three.example", 3, SOON, &addresses, &count));
    CHECK_EQUAL(count, 3);
    dl_address_text(&addresses[0], text);
    CHECK_TEXT(text, "[2001:db8::3]:3");
    dl_address_text(&addresses[1], text);
    CHECK_TEXT(text, "192.0.2.3:3");
    dl_address_text(&addresses[2], text);
    CHECK_TEXT(text, "[::1]:3");
    free(addresses);
}

CHECK_CASE(an_unknown_name_is_named)
{
    dl_address *addresses = NULL;
    size_t count = 7;

    fake_names =
        (fake_resolver){.host = "nowhere.example", .code = EAI_NONAME, .failures = 1};
    CHECK_STATUS(dl_address_resolve("nowhere.example", 80, SOON, &addresses, &count),
                 DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "nowhere.example: ");
    CHECK_CONTAINS(dl_last_error()->text, gai_strerror(EAI_NONAME));
    CHECK(addresses == NULL && count == 7);
}

CHECK_CASE(what_can_be_no_host_is_not_looked_up)
{
    static const char *const hosts[] = {"[::1]",
                                        "nowhere.example\n",
                                        " nowhere.example",
                                        "",
                                        "a b",
                                        "http://nowhere.example",
                                        "a:80",
                                        "me@nowhere.example",
                                        "1.2.3.4/24"};
    char longest[257];
    dl_address *addresses = NULL;
    size_t count;

    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        fake_names = (fake_resolver){.host = hosts[i], .addresses = {"127.0.0.1"}};
        CHECK_STATUS(dl_address_resolve(hosts[i], 80, SOON, &addresses, &count),
                     DL_INVALID);
    }
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    CHECK_STATUS(dl_address_resolve(longest, 80, SOON, &addresses, &count), DL_INVALID);
    CHECK_STATUS(dl_address_resolve("[::1]", 80, SOON, &addresses, &count), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "no brackets here, as in ::1");
    CHECK_STATUS(dl_address_resolve("a\n", 80, SOON, &addresses, &count), DL_INVALID);
    CHECK_TEXT(dl_last_error()->text,
               "\"a\\x0a\" is neither the name nor the address of a host");
}

CHECK_CASE(what_may_yet_be_a_host_is_looked_up)
{
    static const char *const hosts[] = {"fe80::1%later0", "a_b-c.example.",
                                        "h\xc3\xa4t"};
    dl_address *addresses = NULL;
    size_t count;

    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        fake_names = (fake_resolver){.host = hosts[i], .addresses = {"127.0.0.1"}};
        CHECK_OK(dl_address_resolve(hosts[i], 80, SOON, &addresses, &count));
        free(addresses);
    }
}

static int
count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;

    CHECK(tasks != NULL);
    while (readdir(tasks) != NULL) {
        count++;
    }
    closedir(tasks);
    return count;
}

static void *
note_thread(void *task)
{
    snprintf(task, 64, "/proc/self/task/%d", (int)gettid());
    return NULL;
}

/* Includes threads that start with a program's first one: sanitizers have such a thread. */
static int
count_threads_at_first(void)
{
    dl_deadline deadline = SOON;
    pthread_t first;
    char task[64];

    CHECK(pthread_create(&first, NULL, note_thread, task) == 0);
    CHECK(pthread_join(first, NULL) == 0);
    /* Joined, but perhaps on its way out. */
    while (access(task, F_OK) == 0) {
        CHECK(!dl_deadline_passed(deadline));
        usleep(1000);
    }
    return count_threads();
}

/* Without this the helper could outlive the case, and hide what it does wrong. */
static void
await_helpers(int threads)
{
    dl_deadline deadline = SOON;

    while (count_threads() > threads) {
        CHECK(!dl_deadline_passed(deadline));
        usleep(1000);
    }
}

CHECK_CASE(a_slow_resolver_does_not_break_the_deadline)
{
    dl_address *addresses = NULL;
    size_t count = 0;
    int threads = count_threads_at_first();

    fake_names = (fake_resolver){
        .host = "slow.example", .addresses = {"127.0.0.1"}, .delay_ms = 700};
    int64_t start = dl_now();
    CHECK_STATUS(dl_address_resolve("slow.example", 80,
                                    dl_deadline_after(100 * DL_MILLISECOND), &addresses,
                                    &count),
                 DL_TIMEOUT);
    CHECK(dl_now() - start >= 100 * DL_MILLISECOND);
    CHECK(dl_now() - start < 500 * DL_MILLISECOND + CHECK_SLACK);
    CHECK_CONTAINS(dl_last_error()->text, "slow.example");
    await_helpers(threads);
}

CHECK_CASE(a_slow_resolver_can_be_interrupted)
{
    dl_address *addresses = NULL;
    size_t count = 0;
    int threads = count_threads_at_first();

    fake_names = (fake_resolver){
        .host = "slow.example", .addresses = {"127.0.0.1"}, .delay_ms = 1200};
    fake_interrupt_after(100 * DL_MILLISECOND);
    CHECK_INTERRUPTED(dl_address_resolve("slow.example", 80, SOON, &addresses, &count));
    await_helpers(threads);
}

CHECK_CASE(allocations_may_fail)
{
    bool has_failed = true;
    int threads = count_threads_at_first();

    fake_names =
        (fake_resolver){.host = "name.example", .addresses = {"192.0.2.1", "::1"}};
    for (long number = 1; has_failed; number++) {
        dl_address *addresses = NULL;
        size_t count = 0;
        dl_check_fail_allocation_at(number);
        dl_status status =
            dl_address_resolve("name.example", 80, SOON, &addresses, &count);
        has_failed = dl_check_allocation_failed();
        CHECK_EQUAL(status, has_failed ? DL_NO_MEMORY : DL_OK);
        free(addresses);
        await_helpers(threads);
    }
}
