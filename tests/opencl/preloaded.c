/* Stands before OpenCL's calls as dv/dt's library does (dvdt-ck.md 1), and prints its array when the program ends. Times
   are the device's own, by clGetEventProfilingInfo. Written from the format's description. */
#define _GNU_SOURCE
#include "cl.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char *text;
static size_t used, room;

static void put(const char *form, ...) {
  va_list values;
  if (used + 8192 > room)
    text = realloc(text, room = room * 2 + 16384);
  va_start(values, form);
  used += vsnprintf(text + used, room - used, form, values);
  va_end(values);
}

static void stamp(char *out) {
  struct timespec now;
  struct tm parts;
  char day[32];
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &parts);
  strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts);
  sprintf(out, "%s.%06ld", day, now.tv_nsec / 1000);
}

static void begin(const char *call) { put("%s{\"call\": \"%s\"", used ? ",\n\t" : "", call); }
static void end(const char *from) {
  char until[64];
  stamp(until);
  put(", \"timestamp\": {\"start\": \"%s\", \"end\": \"%s\"}}", from, until);
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

cl_queue clCreateCommandQueue(cl_context context, cl_device_id device, cl_ulong properties, cl_int *error) {
  REAL(clCreateCommandQueue);
  char from[64];
  stamp(from);
  cl_queue queue = real(context, device, properties | CL_QUEUE_PROFILING, error);
  begin("clCreateCommandQueue");
  put(", \"context\": \"%p\", \"device\": \"%p\", \"properties\": %llu, \"errcode_ret\": \"%p\", \"errcode\": 0, "
      "\"queue\": \"%p\"", (void *)context, (void *)device, (unsigned long long)properties, (void *)error, (void *)queue);
  end(from);
  return queue;
}

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *error) {
  REAL(clCreateKernel);
  char from[64];
  stamp(from);
  cl_kernel kernel = real(program, name, error);
  begin("clCreateKernel");
  put(", \"program\": \"%p\", \"name\": \"%s\", \"errcode_ret\": \"%p\", \"errcode\": 0, \"kernel\": \"%p\"",
      (void *)program, name, (void *)error, (void *)kernel);
  end(from);
  return kernel;
}

cl_mem clCreateBuffer(cl_context context, cl_ulong flags, size_t size, void *host, cl_int *error) {
  REAL(clCreateBuffer);
  char from[64];
  stamp(from);
  cl_mem buffer = real(context, flags, size, host, error);
  begin("clCreateBuffer");
  put(", \"context\": \"%p\", \"flags\": %llu, \"size\": %zu, \"host_ptr\": \"0\", \"errcode_ret\": \"%p\", "
      "\"errcode\": 0, \"buffer\": \"%p\"", (void *)context, (unsigned long long)flags, size, (void *)error,
      (void *)buffer);
  end(from);
  return buffer;
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
  REAL(clSetKernelArg);
  char from[64], hex[129] = "";
  stamp(from);
  cl_int code = real(kernel, index, size, value);
  for (size_t i = 0; i < size && i < 64; i++)
    sprintf(hex + 2 * i, "%02x", ((const unsigned char *)value)[i]);
  begin("clSetKernelArg");
  put(", \"kernel\": \"%p\", \"arg_index\": %u, \"arg_size\": %zu, \"arg_value\": \"%s\", \"errcode\": %d",
      (void *)kernel, index, size, hex, code);
  end(from);
  return code;
}

cl_int clEnqueueNDRangeKernel(cl_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                              const size_t *all, const size_t *group, cl_uint waits, const cl_event *list,
                              cl_event *event) {
  REAL(clEnqueueNDRangeKernel);
  cl_event own;
  cl_ulong times[4] = {0};
  char from[64], name[256] = "";
  stamp(from);
  cl_int code = real(queue, kernel, dimensions, offset, all, group, waits, list, event ? event : &own);
  if (!code) {
    clWaitForEvents(1, event ? event : &own);
    for (cl_uint i = 0; i < 4; i++)
      clGetEventProfilingInfo(event ? *event : own, CL_QUEUED + i, sizeof(cl_ulong), &times[i], NULL);
  }
  clGetKernelInfo(kernel, 0x1190, sizeof name, name, NULL);
  begin("clEnqueueNDRangeKernel");
  put(", \"name\": \"%s\", \"queue\": \"%p\", \"kernel\": \"%p\", \"gwo\": [0, 0, 0]", name, (void *)queue,
      (void *)kernel);
  put(", \"gws\": [%zu, %zu, %zu]", all[0], dimensions > 1 ? all[1] : 1, dimensions > 2 ? all[2] : 1);
  put(", \"lws\": [%zu, %zu, %zu]", group ? group[0] : 0, group && dimensions > 1 ? group[1] : !!group,
      group && dimensions > 2 ? group[2] : !!group);
  put(", \"event_wait_list\": [], \"event\": \"0\", \"profiling\": {\"queued\": %llu, \"submit\": %llu, \"start\": %llu, "
      "\"end\": %llu}, \"errcode\": %d", (unsigned long long)times[0], (unsigned long long)times[1],
      (unsigned long long)times[2], (unsigned long long)times[3], code);
  end(from);
  return code;
}

__attribute__((destructor)) static void finish(void) { printf("[dv/dt] <<\n[%s]\n[dv/dt] >>\n", used ? text : ""); }
