/* SPDX-License-Identifier: MIT */
/*
 * coroutine.c - see coroutine.h.
 */
#include "coroutine.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* ------------------------------------------------------------- the switch */

#ifdef SIM_UCONTEXT

static struct coroutine *beginning;

static void begin(void);

static void begin_prepared(void) {
  begin();
}

static void set_registers(struct coroutine *self) {
  getcontext(&self->registers);
  self->registers.uc_stack.ss_sp = self->stack;
  self->registers.uc_stack.ss_size = self->stack_size;
  self->registers.uc_link = NULL;
  makecontext(&self->registers, begin_prepared, 0);
}

static void exchange(struct coroutine *from, struct coroutine *to) {
  beginning = to;
  swapcontext(&from->registers, &to->registers);
}

#else

/*
 * What a C function must preserve is saved on the stack that is left.  The way back is a
 * jump, not a return: a processor predicts returns by the calls it saw on one stack.
 * x87 and SSE control words stay as they are: nobody here changes them.
 */
void ids_sim_exchange(void **save_stack_pointer, void *stack_pointer);
void ids_sim_begin(void);
__asm__(".text\n"
        ".p2align 4\n"
        ".globl ids_sim_exchange\n"
        ".hidden ids_sim_exchange\n"
        ".type ids_sim_exchange, @function\n"
        "ids_sim_exchange:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  popq %rcx\n"
        "  jmp *%rcx\n"
        ".size ids_sim_exchange, . - ids_sim_exchange\n"
        ".globl ids_sim_begin\n"
        ".hidden ids_sim_begin\n"
        ".type ids_sim_begin, @function\n"
        "ids_sim_begin:\n"
        "  .cfi_startproc\n"
        "  .cfi_undefined rip\n" /* who walks up the stack ends here */
        "  movq %r12, %rdi\n"
        "  callq *%rbx\n"
        "  ud2\n"
        "  .cfi_endproc\n"
        ".size ids_sim_begin, . - ids_sim_begin\n");

__attribute__((noreturn)) static void begin(struct coroutine *self);

/* What ids_sim_exchange() pops, the lowest first. */
struct frame {
  void *r15, *r14, *r13;
  struct coroutine *r12;
  void (*rbx)(struct coroutine *self);
  void *rbp;
  void (*rip)(void);
};

static void set_registers(struct coroutine *self) {
  /* ids_sim_begin() calls with a stack that is a multiple of 16, as the ABI wants. */
  char *top = self->stack + self->stack_size - 16;
  struct frame *frame = (struct frame *)(void *)(top - sizeof *frame);
  *frame = (struct frame){ .r12 = self, .rbx = begin, .rip = ids_sim_begin };
  self->stack_pointer = frame;
}

static inline void exchange(struct coroutine *from, struct coroutine *to) {
  ids_sim_exchange(&from->stack_pointer, to->stack_pointer);
}

#endif

/* -------------------------------------------------- what sanitizers are told */

#ifdef SIM_ASAN
static struct coroutine *left_last;
#endif

static inline void before_switch(struct coroutine *from, struct coroutine *to, bool is_last) {
#ifdef SIM_ASAN
  left_last = from;
  __sanitizer_start_switch_fiber(is_last ? NULL : &from->fake_stack, to->stack, to->stack_size);
#endif
#ifdef SIM_TSAN
  __tsan_switch_to_fiber(to->fibre, __tsan_switch_to_fiber_no_sync);
#endif
  (void)from;
  (void)to;
  (void)is_last;
}

static inline void after_switch(struct coroutine *self) {
#ifdef SIM_ASAN
  const void *bottom;
  __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &left_last->stack_size);
  left_last->stack = (char *)(uintptr_t)bottom;
#endif
  (void)self;
}

/* ------------------------------------------------------------------ public */

#ifdef SIM_UCONTEXT
static void begin(void) {
  struct coroutine *self = beginning;
#else
static void begin(struct coroutine *self) {
#endif
  after_switch(self);
  self->main(self->context);
  abort();
}

void coroutine_adopt(struct coroutine *self) {
#ifdef SIM_TSAN
  self->fibre = __tsan_get_current_fiber();
#endif
  self->fake_stack = NULL;
}

/* A page without access below the stack, so that an overflow stops at once. */
static bool make_stack(struct coroutine *self, size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size = (size + page - 1) / page * page;
  if (self->stack != NULL)
    munmap(self->stack - page, self->stack_size + page);
  self->stack = NULL;
  char *memory = mmap(NULL, size + page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return false;
  mprotect(memory, page, PROT_NONE);
  self->stack = memory + page;
  self->stack_size = size;
  return true;
}

bool coroutine_prepare(struct coroutine *self, size_t stack_size, void (*main)(void *context),
                       void *context) {
  if ((self->stack == NULL || self->stack_size < stack_size) && !make_stack(self, stack_size))
    return false;
#ifdef SIM_TSAN
  if (self->fibre == NULL)
    self->fibre = __tsan_create_fiber(0);
#endif
  self->main = main;
  self->context = context;
  self->fake_stack = NULL;
  set_registers(self);
  return true;
}

void coroutine_forsake(struct coroutine *self, struct coroutine *current) {
#ifdef SIM_ASAN
  if (self->stack != NULL)
    __asan_unpoison_memory_region(self->stack, self->stack_size);
#endif
#ifdef SIM_TSAN
  /* It remembers the functions it is in.  A switch back from it orders what it did. */
  if (self->fibre != NULL) {
    __tsan_switch_to_fiber(self->fibre, __tsan_switch_to_fiber_no_sync);
    __tsan_switch_to_fiber(current->fibre, 0);
    __tsan_destroy_fiber(self->fibre);
  }
  self->fibre = NULL;
#endif
  (void)self;
  (void)current;
}

void coroutine_switch(struct coroutine *from, struct coroutine *to) {
  before_switch(from, to, false);
  exchange(from, to);
  after_switch(from);
}

void coroutine_leave(struct coroutine *from, struct coroutine *to) {
  before_switch(from, to, true);
  exchange(from, to);
  abort();
}
