// Counts every byte asked of torch's CPU allocator, and leaves the allocating to the allocator it found.
// With a limit, it refuses what would exceed it, as a full GPU does: with torch.OutOfMemoryError.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <pthread.h>

#include <cstdint>
#include <limits>
#include <mutex>
#include <unordered_map>

namespace {

c10::Allocator* inner = nullptr;
std::mutex guard;  // one lock for the three, so that a peak is a sum that really was live
std::unordered_map<void*, std::int64_t> sizes;
std::int64_t live = 0;
std::int64_t peak = 0;
constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
std::int64_t limit = unlimited;
std::int64_t refused = 0;         // what was asked for when the limit last refused
std::int64_t live_at_refusal = 0;
thread_local int aside = 0;       // above 0, this thread allocates for surefoot itself: in no book

void admit(std::int64_t size) {
  std::lock_guard<std::mutex> lock(guard);
  if (size <= limit - live) return;
  refused = size;
  live_at_refusal = live;
  TORCH_CHECK_WITH(OutOfMemoryError, false, "Tried to allocate ", size, " bytes; ", live, " of at most ", limit,
                   " bytes are in use (--memory-limit)");
}

void book(void* data, std::int64_t size) {
  std::lock_guard<std::mutex> lock(guard);
  sizes[data] = size;
  live += size;
  if (live > peak) peak = live;
}

// What was allocated before the counter was installed is in no book: it is only handed on.
void unbook(void* data) {
  std::lock_guard<std::mutex> lock(guard);
  auto found = sizes.find(data);
  if (found == sizes.end()) return;
  live -= found->second;
  sizes.erase(found);
}

void release(void* data) {
  if (data == nullptr) return;
  unbook(data);  // before the memory goes back, or another thread could be given the same address
  inner->raw_deleter()(data);
}

struct CountingAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t size) override {
    if (aside > 0) return inner->allocate(size);
    admit(static_cast<std::int64_t>(size));
    c10::DataPtr given = inner->allocate(size);
    void* data = given.get();
    if (data == nullptr) return given;
    given.release_context();  // from here on `release` frees it; oneDNN needs context == data
    book(data, static_cast<std::int64_t>(size));
    return {data, data, &release, given.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    inner->copy_data(to, from, count);
  }
};

}  // namespace

extern "C" {

// 0: counting. 1: the allocator in place keeps a context of its own and cannot be wrapped.
int surefoot_install() {
  static CountingAllocator* counting = new CountingAllocator();  // outlives every tensor: never deleted
  // A forked process, such as a loader's worker, has memory of its own: it counts on, and nothing limits it.
  static int forks = pthread_atfork([] { guard.lock(); }, [] { guard.unlock(); }, [] { limit = unlimited; guard.unlock(); });
  (void)forks;
  c10::Allocator* found = c10::GetCPUAllocator();
  if (found == counting) return 0;
  if (found->raw_deleter() == nullptr) return 1;
  inner = found;
  c10::SetCPUAllocator(counting, 255);
  return 0;
}

// What was counted goes on being freed through the counter.
void surefoot_uninstall() {
  if (inner != nullptr) c10::SetCPUAllocator(inner, 255);
}

std::int64_t surefoot_live_bytes() {
  std::lock_guard<std::mutex> lock(guard);
  return live;
}

std::int64_t surefoot_peak_bytes() {
  std::lock_guard<std::mutex> lock(guard);
  return peak;
}

// The most bytes that may be live; below 0: any number.
void surefoot_limit(std::int64_t bytes) {
  std::lock_guard<std::mutex> lock(guard);
  limit = bytes < 0 ? unlimited : bytes;
}

std::int64_t surefoot_refused_bytes() {
  std::lock_guard<std::mutex> lock(guard);
  return refused;
}

std::int64_t surefoot_live_bytes_at_refusal() {
  std::lock_guard<std::mutex> lock(guard);
  return live_at_refusal;
}

// Between 1 and -1, what this thread allocates is neither counted nor limited.
void surefoot_aside(int step) { aside += step; }

void surefoot_reset_peak() {
  std::lock_guard<std::mutex> lock(guard);
  peak = live;
}

}
