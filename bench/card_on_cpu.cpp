// A card whose memory is this machine's: counts what torch's CPU allocator gives to tensors of the card, and no others.
//
// An operator runs on the card if one of its tensors lies there, an operator without tensors where its caller does, and
// everything in a region that was marked does what the mark says. No dispatch mode is needed, which would change what
// autograd keeps. The card draws its random numbers from a generator of its own, as a GPU does.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

enum Place { unknown = 0, card = 1, host = 2 };

struct Block {
  std::int64_t size;
  bool on_card;
};

c10::Allocator* inner = nullptr;
std::mutex guard;
std::unordered_map<const void*, Block> blocks;
std::int64_t live = 0, peak = 0;
thread_local int marked = unknown;
thread_local bool in_backward = false;  // hooks between its operators run on the card
thread_local std::vector<bool> running;  // of each operator that runs in this thread: is it on the card

bool here() { return marked != unknown ? marked == card : running.empty() ? in_backward : running.back(); }

void add(std::int64_t size) {
  live += size;
  if (live > peak) peak = live;
}

void release(void* data) {
  if (data == nullptr) return;
  {
    std::lock_guard<std::mutex> lock(guard);
    auto found = blocks.find(data);
    if (found != blocks.end()) {
      if (found->second.on_card) live -= found->second.size;
      blocks.erase(found);
    }
  }
  inner->raw_deleter()(data);
}

struct CardAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t size) override {
    c10::DataPtr given = inner->allocate(size);
    void* data = given.get();
    if (data == nullptr) return given;
    given.release_context();
    std::lock_guard<std::mutex> lock(guard);
    const auto bytes = static_cast<std::int64_t>(size);
    blocks[data] = {bytes, here()};
    if (here()) add(bytes);
    return {data, data, &release, given.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t count) const override { inner->copy_data(to, from, count); }
};

bool on_card(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return false;
  std::lock_guard<std::mutex> lock(guard);
  auto found = blocks.find(tensor.storage().data());
  return found != blocks.end() && found->second.on_card;
}

// Where the tensors among some operands lie. Numbers, and tensors that are empty until they are resized, are of nowhere.
Place place_of(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || !tensor.has_storage() || tensor.storage().data() == nullptr) return unknown;
    return on_card(tensor) ? card : tensor.dim() == 0 ? unknown : host;
  }
  Place found = unknown;
  if (value.isList()) {
    for (const c10::IValue& each : value.toListRef()) {
      const Place place = place_of(each);
      if (place == card) return card;
      if (place == host) found = host;
    }
  }
  return found;
}

struct Drawn {  // the state of a generator
  at::mt19937 engine;
  std::optional<float> next_float;
  std::optional<double> next_double;
};

at::CPUGeneratorImpl* generator() { return at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator()); }

void exchange(Drawn& other) {
  auto* own = generator();
  Drawn before{own->engine(), own->next_float_normal_sample(), own->next_double_normal_sample()};
  own->set_engine(other.engine);
  own->set_next_float_normal_sample(other.next_float);
  own->set_next_double_normal_sample(other.next_double);
  other = before;
}

Drawn of_the_card{at::mt19937(7), {}, {}};
bool draws_there = false;

void draw_there(bool there) {
  if (there == draws_there) return;
  exchange(of_the_card);
  draws_there = there;
}

struct Before : at::ObserverContext {
  bool drew;
};

std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& function) {
  Place place = unknown;
  for (const c10::IValue& each : function.inputs()) {
    const Place found = place_of(each);
    if (found == card || place == unknown) place = found == unknown ? place : found;
    if (place == card) break;
  }
  const bool above = running.empty() ? in_backward : running.back();
  const bool there = marked != unknown ? marked == card : place == unknown ? above : place == card;
  running.push_back(there);
  auto before = std::make_unique<Before>();
  before->drew = draws_there;
  draw_there(there);
  return before;
}

void ends(const at::RecordFunction&, at::ObserverContext* context) {
  if (!running.empty()) running.pop_back();
  draw_there(static_cast<Before*>(context)->drew);
}

}  // namespace

extern "C" {

void card_install() {
  static CardAllocator* counting = new CardAllocator();
  if (inner != nullptr) return;
  inner = c10::GetCPUAllocator();
  c10::SetCPUAllocator(counting, 255);
  at::addGlobalCallback(at::RecordFunctionCallback(begins, ends).needsInputs(true).scopes(
      {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

int card_mark(int place) {
  const int before = marked;
  marked = place;
  return before;
}

int card_backward(int is) {
  const bool before = in_backward;
  in_backward = is;
  return before;
}

int card_holds(const void* data) {
  std::lock_guard<std::mutex> lock(guard);
  auto found = blocks.find(data);
  return found != blocks.end() && found->second.on_card;
}

// Counts a block that was made on the host as one of the card, as if it had been moved.
void card_take(const void* data) {
  std::lock_guard<std::mutex> lock(guard);
  auto found = blocks.find(data);
  if (found == blocks.end() || found->second.on_card) return;
  found->second.on_card = true;
  add(found->second.size);
}

std::int64_t card_peak() {
  std::lock_guard<std::mutex> lock(guard);
  return peak;
}

std::int64_t card_live() {
  std::lock_guard<std::mutex> lock(guard);
  return live;
}

void card_reset_peak() {
  std::lock_guard<std::mutex> lock(guard);
  peak = live;
}
}
