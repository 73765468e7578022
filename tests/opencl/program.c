/* Runs a convolution of 1x1 ARGV[1] times on the first OpenCL device, and logs its calls as MIOpen does when it is asked
   to by MIOpen's own variable. Exit 1 without a device. Prints the sum that the device computed. */
#include "cl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define N 64
static const char *SOURCE =
    "__kernel void MIOpenConv1x1(__global const float *x, __global const float *w, __global float *y) {\n"
    "  size_t i = get_global_id(0); y[i] = x[i] * w[0] + 1.0f; }\n";

static void log_call(cl_mem x, cl_mem w, cl_mem y) {
  const char *on = getenv("MIOPEN_ENABLE_LOGGING"), *threads = getenv("MIOPEN_ENABLE_LOGGING_MPMT");
  char prefix[64] = "MIOpen(OpenCL)";
  if (!on || strcmp(on, "1"))
    return;
  if (threads && !strcmp(threads, "1"))
    snprintf(prefix, sizeof prefix, "%ld MIOpen(OpenCL)", (long)syscall(SYS_gettid));
  fprintf(stderr,
          "%1$s: miopenStatus_t miopenConvolutionForward(miopenHandle_t, const void *, const miopenTensorDescriptor_t, "
          "const void *, const miopenTensorDescriptor_t, const void *, const miopenConvolutionDescriptor_t, "
          "miopenConvFwdAlgorithm_t, const void *, const miopenTensorDescriptor_t, void *, void *, size_t){\n"
          "%1$s: \talpha = 1\n%1$s: \txDesc = 1, 1, 8, 8\n%1$s: \tx = %2$p\n%1$s: \twDesc = 1, 1, 1, 1\n%1$s: \tw = %3$p\n"
          "%1$s: \tconvDesc = conv2d, miopenConvolution, miopenPaddingDefault, {0, 0}, {1, 1}, {1, 1}, \n"
          "%1$s: \talgo = 1\n%1$s: \tbeta = 0\n%1$s: \tyDesc = 1, 1, 8, 8\n%1$s: \ty = %4$p\n%1$s: \tworkSpace = 0\n"
          "%1$s: \tworkSpaceSize = 0\n%1$s: }\n",
          prefix, (void *)x, (void *)w, (void *)y);
}

int main(int count, char **words) {
  cl_platform_id platform;
  cl_device_id device;
  cl_int error = 0;
  if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
    return puts("no device"), 1;
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
  cl_queue queue = clCreateCommandQueue(context, device, 0, &error);
  cl_program program = clCreateProgramWithSource(context, 1, &SOURCE, NULL, &error);
  if (error || clBuildProgram(program, 0, NULL, "", NULL, NULL))
    return puts("no program"), 1;
  cl_kernel kernel = clCreateKernel(program, "MIOpenConv1x1", &error);
  cl_mem buffers[3];
  for (int i = 0; i < 3; i++)
    buffers[i] = clCreateBuffer(context, CL_MEM_READ_WRITE, N * sizeof(float), NULL, &error);
  size_t all = N, group = 16;
  float y[N] = {0};
  for (int i = 0; i < (count > 1 ? atoi(words[1]) : 1); i++) {
    log_call(buffers[0], buffers[1], buffers[2]);
    for (cl_uint k = 0; k < 3; k++)
      clSetKernelArg(kernel, k, sizeof(cl_mem), &buffers[k]);
    if (clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &all, &group, 0, NULL, NULL))
      return puts("not enqueued"), 1;
  }
  clEnqueueReadBuffer(queue, buffers[2], 1, 0, sizeof y, y, 0, NULL, NULL);
  clFinish(queue);
  printf("computed %d values\n", N);
  return count > 2 ? atoi(words[2]) : 0;
}
