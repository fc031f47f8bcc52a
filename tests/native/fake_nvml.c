/* NVIDIA's library with one GPU, which writes its calls to the file that NVML_CALLS names; NVML_DENIES refuses all. */
#include <stdio.h>
#include <stdlib.h>

enum { NOT_ALLOWED = 4, LOWEST = 345, HIGHEST = 1980, STEP = 15 };

static int noted(const char *domain, unsigned least, unsigned most) {
    if (getenv("NVML_DENIES")) return NOT_ALLOWED;
    FILE *out = fopen(getenv("NVML_CALLS"), "a");
    if (!out) return 1;
    if (most) fprintf(out, "%s:%u:%u\n", domain, least, most);
    else fprintf(out, "%s\n", domain);
    return fclose(out) ? 1 : 0;
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *clocks);
int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory, unsigned *count, unsigned *clocks);
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz);
int nvmlDeviceSetGpuLockedClocks(void *device, unsigned least, unsigned most);
int nvmlDeviceResetGpuLockedClocks(void *device);
int nvmlDeviceSetMemoryLockedClocks(void *device, unsigned least, unsigned most);
int nvmlDeviceResetMemoryLockedClocks(void *device);

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return *device = NULL, (int)index; }

int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *clocks) {
    (void)device;
    clocks[0] = 2619;
    clocks[1] = 1593;
    return *count = 2, 0;
}

int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory, unsigned *count, unsigned *clocks) {
    (void)device;
    unsigned found = 0;
    for (unsigned mhz = HIGHEST; memory == 2619 && mhz >= LOWEST; mhz -= STEP) clocks[found++] = mhz;
    return *count = found, 0;
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) {
    (void)device;
    return *mhz = kind ? 2619 : LOWEST, 0;
}

int nvmlDeviceSetGpuLockedClocks(void *device, unsigned least, unsigned most) {
    (void)device;
    return noted("core", least, most);
}

int nvmlDeviceResetGpuLockedClocks(void *device) {
    (void)device;
    return noted("core", 0, 0);
}

int nvmlDeviceSetMemoryLockedClocks(void *device, unsigned least, unsigned most) {
    (void)device;
    return noted("bus", least, most);
}

int nvmlDeviceResetMemoryLockedClocks(void *device) {
    (void)device;
    return noted("bus", 0, 0);
}
