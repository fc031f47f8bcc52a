/* Which way is taken for memory: the first that the device has and that takes it. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "importing.h"
#include "descriptors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const KINDS[] = {
    [NO_KIND] = "", [OF_MEMFD] = "memfd", [OF_DMA_BUF] = "fd", [OF_HOST] = "host", [OF_SVM] = "svm", [OF_USM] = "usm",
    [OF_MAPPED] = "mapped", [OF_CL_MEM] = "cl_mem", [OF_HARDWARE_BUFFER] = "hardware_buffer"};

/* NULL where there is no memory. */
static importing *importing_of(gputune_device *device) {
    if (device->importing) return device->importing;
    importing *made = pool_take(&device->pool, 1, sizeof *made);
    if (!made) return NULL;
    made->device = device;
    ask_device(made);
    return device->importing = made;
}

/* Why a device does not have an importer; "": it can be tried. */
static const char *unusable(const importing *own, size_t place) {
    return *own->refused[place] ? own->refused[place] : own->lacks[place];
}

/* --- one importer ------------------------------------------------------------------------------------------------- */

/* Maps a new cl_mem, which makes it the host's. A map that lies elsewhere than the memory is a copy. */
static taking map_first(gputune_memory *memory, char *why) {
    const opencl *cl = &memory->device->cl;
    const cl_command_queue queue = memory->device->stream.queue;
    char room[STATUS_CHARACTERS];
    cl_int status = 0;
    void *seen = cl->EnqueueMapBuffer(queue, memory->memory, 1, CL_MAP_READ | CL_MAP_WRITE, 0, memory->nbytes, 0, NULL,
                                      NULL, &status);
    if (!status && seen == memory->data) {
        memory->of_host = true;
        return IS_TAKEN;
    }
    if (!status) cl->EnqueueUnmapMemObject(queue, memory->memory, seen, 0, NULL, NULL);
    snprintf(why, REASON_BYTES, "clEnqueueMapBuffer failed: %s", status_text(status, room));
    if (!status) strcpy(why, "the driver copies: what it maps lies elsewhere");
    drop_buffer(memory);
    return status ? HAS_FAILED : IS_REFUSED;
}

/* What holds for all memory is kept. */
static bool taken_by(importing *own, size_t place, gputune_memory *memory, char why[REASON_BYTES]) {
    const importer *importer = &IMPORTER[place];
    if (!importer->fits(own, memory, why)) return false;
    taking done = importer->take(own, memory, why);
    if (done == IS_TAKEN && importer->access == BY_MAP) done = map_first(memory, why);
    if (done == IS_REFUSED) strcpy(own->refused[place], why);
    if (done == IS_TAKEN) memory->importer = importer;
    return done == IS_TAKEN;
}

/* Says what speaks against each importer: first what is this memory's, and each reason once. */
static void list_reasons(const importing *own, const gputune_memory *memory, char reasons[IMPORTERS][REASON_BYTES],
                         const bool tried[IMPORTERS], char *text, size_t room) {
    bool told[IMPORTERS] = {false};
    size_t length = 0;
    length += (size_t)snprintf(text, room, "%s cannot use %s memory of %zu bytes without a copy (",
                               own->device->identity.name, KINDS[memory->of], memory->nbytes);
    const char *between = "";
    for (int of_memory = 1; of_memory >= 0; of_memory--)
        for (size_t i = 0; i < IMPORTERS; i++) {
            if (told[i] || tried[i] != of_memory) continue;
            for (size_t j = i; j < IMPORTERS; j++) {
                if (tried[j] != tried[i] || strcmp(reasons[i], reasons[j])) continue;
                told[j] = true;
                if (length < room) length += (size_t)snprintf(text + length, room - length, "%s%s", between,
                                                              IMPORTER[j].name);
                between = ", ";
            }
            if (length < room) length += (size_t)snprintf(text + length, room - length, ": %s", reasons[i]);
            between = "; ";
        }
    if (length < room) snprintf(text + length, room - length, ")");
    cut_text(text);
}

/* Of memory that is taken, which becomes the host's where that is no map. */
static gputune_code say_kind(gputune_memory *memory, gputune_error *error) {
    const host_access access = memory->importer->access;
    memory->coherent = access == NO_COMMAND;
    memory->kind = access == BY_MAP ? "mapped" : access == BY_SYNC ? "synchronised" : "shared";
    return access == BY_SYNC ? give_to_host(memory, &memory->device->stream, error) : GPUTUNE_OK;
}

gputune_code take_memory(gputune_memory *memory, gputune_error *error) {
    importing *own = importing_of(memory->device);
    char reasons[IMPORTERS][REASON_BYTES], text[GPUTUNE_MESSAGE_BYTES];
    bool tried[IMPORTERS] = {false};
    if (!own) return NO_MEMORY;
    for (size_t i = 0; i < IMPORTERS && !memory->importer; i++) {
        tried[i] = !*unusable(own, i);
        if (!tried[i]) strcpy(reasons[i], unusable(own, i));
        else taken_by(own, i, memory, reasons[i]);
    }
    if (memory->importer) return say_kind(memory, error);
    list_reasons(own, memory, reasons, tried, text, sizeof text);
    if (!memory->data) return fail(error, GPUTUNE_CANNOT_IMPORT, "%s", text);
    memory->reason = malloc(strlen(text) + 1);
    if (!memory->reason) return NO_MEMORY;
    memory->kind = strcpy(memory->reason, text);
    return GPUTUNE_OK;
}

/* --- memory of a device's own kind -------------------------------------------------------------------------------- */

static bool allocated(const importing *own, size_t place, gputune_memory *memory, char why[REASON_BYTES]) {
    const importer *importer = &IMPORTER[place];
    if (*unusable(own, place)) return false;
    memory->of = importer->allocates;
    if (importer->allocate(own, memory, why)) return true;
    memory->of = NO_KIND, memory->data = NULL;
    return false;
}

/* A memfd, which other processes can be given, too, or pages of the process. */
static gputune_code make_pages(gputune_memory *memory, gputune_error *error) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    memory->descriptor = sealed_memfd(memory->nbytes);
    const int flags = memory->descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *pages = mmap(NULL, memory->nbytes, PROT_READ | PROT_WRITE, flags, memory->descriptor, 0);
    if (pages == MAP_FAILED)
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "memory of %zu bytes cannot be allocated", memory->nbytes);
    memory->of = memory->descriptor < 0 ? OF_HOST : OF_MEMFD;
    memory->data = memory->pages = pages;
    memory->page_bytes = (memory->nbytes + page - 1) / page * page;
    return GPUTUNE_OK;
}

/* Has memory be what the driver has allocated to be mapped, if that can be had and taken. */
static void make_mapped(const importing *own, gputune_memory *memory) {
    char why[REASON_BYTES];
    gputune_memory made = {.device = memory->device, .nbytes = memory->nbytes, .descriptor = -1};
    if (!allocated(own, MAPPED, &made, why)) return;
    const gputune_code code = take_memory(&made, NULL);
    if (code || !made.importer) {
        free_allocated(&made);
        free(made.reason);
        return;
    }
    drop_host(memory);
    free(memory->reason);
    *memory = made;
}

gputune_code allocate_memory(gputune_memory *memory, gputune_error *error) {
    importing *own = importing_of(memory->device);
    char why[REASON_BYTES];
    if (!own) return NO_MEMORY;
    if (allocated(own, FINE_GRAIN, memory, why) || allocated(own, UNIFIED_SHARED, memory, why))
        return take_memory(memory, error);
    TRY(make_pages(memory, error));
    TRY(take_memory(memory, error));
    if (!memory->importer) make_mapped(own, memory);
    return GPUTUNE_OK;
}

/* --- what a device can take --------------------------------------------------------------------------------------- */

/* Why a device cannot take a page of memory, whatever it says of itself; nothing where that takes memory that cannot be
 * had here. */
static void try_page(importing *own, size_t place, char why[REASON_BYTES]) {
    const importer *importer = &IMPORTER[place];
    gputune_memory page = {.device = own->device, .nbytes = (size_t)sysconf(_SC_PAGESIZE), .descriptor = -1};
    char unfit[REASON_BYTES];
    *why = 0;
    const bool made = importer->allocates ? allocated(own, place, &page, why) : !make_pages(&page, NULL);
    if (made && importer->fits(own, &page, unfit) && taken_by(own, place, &page, why)) *why = 0;
    if (page.of_host) give_to_device(&page, &own->device->stream, NULL);
    if (page.importer) finish(&own->device->stream, NULL);
    drop_buffer(&page);
    free_allocated(&page);
    drop_host(&page);
}

static gputune_code list_importers(gputune_device *device, gputune_importer *importers, gputune_error *error) {
    importing *own = importing_of(device);
    if (!own) return NO_MEMORY;
    for (size_t i = 0; i < IMPORTERS; i++) {
        strcpy(own->said[i], unusable(own, i));
        if (!*own->said[i]) try_page(own, i, own->said[i]);
        importers[i] = (gputune_importer){IMPORTER[i].name, own->said[i]};
    }
    importers[IMPORTERS] = (gputune_importer){"copy", ""};
    return GPUTUNE_OK;
}

gputune_code gputune_importers(gputune_device *device, gputune_importer *importers, gputune_error *error) {
    TRY(check_here(device, error));
    TRY(add_user(device, error));
    device_take(device);
    const gputune_code code = list_importers(device, importers, error);
    device_leave(device);
    remove_user(device);
    return code;
}
