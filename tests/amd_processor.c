/* Preloaded into a program, it has the program find an AMD EPYC (Zen 3) in place of its processor.

   Libraries choose what they compute with by the instruction CPUID. Where the processor can refuse it
   (Linux: arch_prctl, ARCH_SET_CPUID; most of Intel's can), each use of it ends up in a handler here that
   gives the answers of an EPYC 7763, as far as this machine has what they promise. Exit status 99 says
   that the processor refuses nothing. The C library has chosen its functions before; it goes by features
   that both have (AVX2, FMA) and by no vendor. What a processor itself does otherwise stays as it is:
   AMD's approximate a reciprocal root (RSQRTPS) by other bits than Intel's, which only one of them shows. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define EXTENDED 0x80000000u
#define LEAVES 32

typedef struct { uint32_t eax, ebx, ecx, edx; } Answer;

static const Answer VENDOR = {0, 0x68747541, 0x444d4163, 0x69746e65}; /* "Authentic" "AMD" */
static const char BRAND[48] = "AMD EPYC 7763 64-Core Processor";
static const uint32_t FAMILY_AND_MODEL = 0x00A00F11;
static const Answer FEATURES = {0, ~0u, 0xFEFA320B, 0x178BFBFF};
static const Answer MORE_FEATURES = {0, 0x219C97A9, 0x0040068C, 0x00000010};
static const Answer EXTENDED_FEATURES = {0, ~0u, 0x75C237FF, 0x2FD3FBFF};

static Answer basic[LEAVES], extended[LEAVES], threads[2], states[3]; /* this processor's own */

static Answer ask(uint32_t leaf, uint32_t sub) {
  Answer a;
  __asm__ volatile("cpuid"
                   : "=a"(a.eax), "=b"(a.ebx), "=c"(a.ecx), "=d"(a.edx)
                   : "a"(leaf), "c"(sub));
  return a;
}

static Answer both(Answer own, Answer other, uint32_t eax) {
  return (Answer){eax, own.ebx & other.ebx, own.ecx & other.ecx, own.edx & other.edx};
}

static Answer answer(uint32_t leaf, uint32_t sub) {
  Answer a = {0, 0, 0, 0};
  switch (leaf) {
    case 0x0:
    case EXTENDED:
      a = VENDOR;
      a.eax = leaf ? EXTENDED + 0x1d : 0x10;
      return a;
    case 0x1:
      return both(basic[1], FEATURES, FAMILY_AND_MODEL);
    case 0x7:
      return sub ? a : both(basic[7], MORE_FEATURES, 0);
    case 0xb:
      return sub < 2 ? threads[sub] : a;
    case 0xd:
      return sub < 3 ? states[sub] : a;
    case EXTENDED + 0x1:
      return both(extended[1], EXTENDED_FEATURES, FAMILY_AND_MODEL);
    case EXTENDED + 0x2:
    case EXTENDED + 0x3:
    case EXTENDED + 0x4:
      memcpy(&a, BRAND + sizeof a * (leaf - EXTENDED - 2), sizeof a);
      return a;
    case EXTENDED + 0x5: /* caches of 32 KB, */
      return (Answer){0, 0, 0x20080140, 0x20080140};
    case EXTENDED + 0x6: /* 512 KB and 32 MB */
      return (Answer){0, 0, 0x02006140, 0x01009140};
    case EXTENDED + 0x8:
      return extended[8];
    default:
      return a;
  }
}

static int set_action(int signal, const struct sigaction *action, struct sigaction *before) {
  int (*real)(int, const struct sigaction *, struct sigaction *) = dlsym(RTLD_NEXT, "sigaction");
  return real(signal, action, before);
}

static void handle(int signal, siginfo_t *info, void *context) {
  (void)info;
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *instruction = (const unsigned char *)registers[REG_RIP];
  if (instruction[0] != 0x0f || instruction[1] != 0xa2) { /* not CPUID: a fault of the program's own */
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    set_action(signal, &usual, NULL);
    return;
  }
  const Answer a = answer((uint32_t)registers[REG_RAX], (uint32_t)registers[REG_RCX]);
  registers[REG_RAX] = a.eax;
  registers[REG_RBX] = a.ebx;
  registers[REG_RCX] = a.ecx;
  registers[REG_RDX] = a.edx;
  registers[REG_RIP] += 2;
}

/* The program's own handlers, a compiler's for one, are not to take the place of this one. */
int sigaction(int signal, const struct sigaction *action, struct sigaction *before) {
  if (signal != SIGSEGV) return set_action(signal, action, before);
  if (before) memset(before, 0, sizeof *before);
  return 0;
}

void (*signal(int signal, void (*handler)(int)))(int) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
  return sigaction(signal, &action, &before) ? SIG_ERR : before.sa_handler;
}

__attribute__((constructor(101))) static void become_another(void) {
  for (uint32_t leaf = 0; leaf < LEAVES; ++leaf) {
    basic[leaf] = ask(leaf, 0);
    extended[leaf] = ask(EXTENDED + leaf, 0);
  }
  for (uint32_t sub = 0; sub < 2; ++sub) threads[sub] = ask(0xb, sub);
  for (uint32_t sub = 0; sub < 3; ++sub) states[sub] = ask(0xd, sub);
  const struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (set_action(SIGSEGV, &action, NULL) || syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0)) _exit(99);
}
