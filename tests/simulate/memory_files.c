/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that processes of one host share: the files and their mappings are real, so
 * each process has the same bytes at another address. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "local.h"

#define MAPPINGS 1024

typedef struct mapping {
    const sim_process *process; /* NULL: free */
    char *at;
    size_t size;
    uint64_t number; /* of the file */
    size_t offset;
} mapping;

int __wrap_memfd_create(const char *name, unsigned flags);
int __real_memfd_create(const char *name, unsigned flags);
int __wrap_posix_fallocate(int fd, off_t offset, off_t size);
int __real_posix_fallocate(int fd, off_t offset, off_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size);
int __real_fallocate(int fd, int mode, off_t offset, off_t size);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd,
                  off_t offset);
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd,
                  off_t offset);
int __wrap_munmap(void *at, size_t size);
int __real_munmap(void *at, size_t size);

static mapping mappings[MAPPINGS];
static int mapping_end; /* the rest was never used */
static uint64_t files_made;

int
__wrap_memfd_create(const char *name, unsigned flags)
{
    sim_call("memfd_create");
    sim_object *made = sim_object_new(SIM_MEMORY);
    made->memory = __real_memfd_create(name, flags);
    made->number = ++files_made;
    return sim_object_open(made);
}

int
__wrap_posix_fallocate(int fd, off_t offset, off_t size)
{
    sim_call("posix_fallocate");
    return __real_posix_fallocate(sim_descriptor_of(fd)->object->memory, offset, size);
}

int
__wrap_fallocate(int fd, int mode, off_t offset, off_t size)
{
    sim_call("fallocate");
    return __real_fallocate(sim_descriptor_of(fd)->object->memory, mode, offset, size);
}

static void
add_mapping(mapping made)
{
    int i = 0;

    while (i < MAPPINGS && mappings[i].process != NULL) {
        i++;
    }
    if (i == MAPPINGS) {
        sim_fail("more than %d mappings", MAPPINGS);
    }
    mappings[i] = made;
    mapping_end = i < mapping_end ? mapping_end : i + 1;
}

/* Code reads files of the disk through a mapping; it gets a copy. */
void *
__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (fd < SIM_FD_FIRST) {
        return __real_mmap(at, size, protection, flags, fd, offset);
    }
    sim_call("mmap");
    const sim_descriptor *descriptor = sim_descriptor_of(fd);
    if (!sim.is_apart && sim_allocation_fails()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (descriptor->kind == SIM_MEMORY) {
        void *made = __real_mmap(at, size, protection, flags,
                                 descriptor->object->memory, offset);
        if (made != MAP_FAILED) {
            add_mapping((mapping){sim_process_current(), made, size,
                                  descriptor->object->number, (size_t)offset});
        }
        return made;
    }
    void *mapped = __real_mmap(NULL, size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sim_file_copy(descriptor, mapped, size);
    return mapped;
}

int
__wrap_munmap(void *at, size_t size)
{
    for (int i = 0; i < mapping_end; i++) {
        if (mappings[i].process != NULL && mappings[i].at == at) {
            mappings[i].process = NULL;
        }
    }
    return __real_munmap(at, size);
}

void
sim_mappings_end(const sim_process *process)
{
    for (int i = 0; i < mapping_end; i++) {
        if (mappings[i].process == process) {
            __real_munmap(mappings[i].at, mappings[i].size);
            mappings[i].process = NULL;
        }
    }
}

int
sim_mapping_count(const sim_process *process)
{
    int count = 0;

    for (int i = 0; i < mapping_end; i++) {
        count += mappings[i].process == process;
    }
    return count;
}

sim_place
sim_place_of(const void *word)
{
    const sim_process *process = sim_process_current();

    for (int i = 0; i < mapping_end; i++) {
        const mapping *one = &mappings[i];
        size_t inside = (size_t)((const char *)word - one->at);
        if (one->process == process && inside < one->size) {
            return (sim_place){one->number, one->offset + inside};
        }
    }
    return (sim_place){(uintptr_t)process, (uintptr_t)word};
}
