// A second device on host memory, which counts what the host would wait for on a GPU, and the bytes it allocates.
//
// It follows torch's guide to PrivateUse1: https://docs.pytorch.org/docs/2.13/accelerator/index.html. Operators without
// a kernel here run on the CPU by `at::native::cpu_fallback`, so their results are the CPU's to the bit, and random
// numbers come from the CPU's generator. What the fallback itself copies is not counted: a GPU would not copy it.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/equal_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <unordered_set>

namespace {

constexpr auto kSecond = c10::DeviceType::PrivateUse1;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);
const c10::Device kDevice(kSecond, 0);

// ---------------------------------------------------------------------------------------------------- counts

enum Wait { kCopy, kScalar, kShape, kSynchronize, kWaits };
std::atomic<int64_t> waits[kWaits], live_bytes{0}, peak_bytes{0}, limit_bytes{int64_t{1} << 40};
std::atomic<void (*)(int)> on_wait{nullptr};
thread_local int inside_fallback = 0;  // autograd runs the backward of each device in a thread of its own

void count(Wait kind) {
  if (inside_fallback) return;
  waits[kind]++;
  if (auto call = on_wait.load()) call(kind);
}

struct Inside {
  Inside() { inside_fallback++; }
  ~Inside() { inside_fallback--; }
};

// ---------------------------------------------------------------------------------------------------- memory

constexpr size_t kAlignment = 64;  // that of torch's CPU allocator; the bytes before a block hold its size

void release(void* block) {
  if (!block) return;
  auto* start = static_cast<char*>(block) - kAlignment;
  live_bytes -= *reinterpret_cast<int64_t*>(start);
  std::free(start);
}

struct SecondAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    if (!size) return {nullptr, nullptr, &release, kDevice};
    const int64_t limit = limit_bytes, held = live_bytes;
    TORCH_CHECK_WITH(OutOfMemoryError, held + static_cast<int64_t>(size) <= limit, "the second device is out of memory: ",
                     size, " bytes asked for, ", limit - held, " of ", limit, " free");
    auto* start = static_cast<char*>(std::aligned_alloc(kAlignment, (size / kAlignment + 2) * kAlignment));
    TORCH_CHECK_WITH(OutOfMemoryError, start, "the host has no ", size, " bytes for the second device");
    *reinterpret_cast<int64_t*>(start) = static_cast<int64_t>(size);
    const int64_t now = live_bytes += static_cast<int64_t>(size);
    for (int64_t peak = peak_bytes; now > peak && !peak_bytes.compare_exchange_weak(peak, now);) {}
    return {start + kAlignment, start + kAlignment, &release, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }
};
SecondAllocator allocator;
REGISTER_ALLOCATOR(kSecond, &allocator)

// ---------------------------------------------------------------------------------------------------- one stream

struct SecondGuard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kSecond;
  SecondGuard() = default;
  explicit SecondGuard(c10::DeviceType) {}
  static c10::Stream only() { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::DeviceType type() const override { return kSecond; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return only(); }
  c10::Stream getDefaultStream(c10::Device) const override { return only(); }
  c10::Stream getNewStream(c10::Device, int) const override { return only(); }
  c10::Stream exchangeStream(c10::Stream) const override { return only(); }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { count(kSynchronize); }
  void synchronizeEvent(void*) const override { count(kSynchronize); }
  void synchronizeDevice(c10::DeviceIndex) const override { count(kSynchronize); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, SecondGuard)

struct SecondHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::DeviceType::CPU); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};

// ---------------------------------------------------------------------------------------------------- operators

at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys, c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  if (to.is_cpu()) count(kCopy);
  const at::AutoDispatchBelowADInplaceOrView below;
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  count(kScalar);
  return at::native::_local_scalar_dense_cpu(on_host(tensor));
}

bool equal(const at::Tensor& one, const at::Tensor& other) {
  count(kScalar);
  return at::native::cpu_equal(on_host(one), on_host(other));
}

at::Tensor as_strided(const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  return at::cpu::as_strided_symint(tensor, size, stride, offset);
}

const at::Tensor& resize(const at::Tensor& tensor, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(tensor, C10_AS_INTARRAYREF_SLOW(size), format);
}

at::Tensor reshape_alias(const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef size) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor& set_tensor(at::Tensor& tensor, const at::Tensor& source) { return at::native::set_tensor_(tensor, source); }

at::Tensor& set_storage(at::Tensor& tensor, at::Storage source) { return at::native::set_(tensor, std::move(source)); }

at::Tensor& set_part(at::Tensor& tensor, at::Storage source, int64_t offset, c10::IntArrayRef size,
                     c10::IntArrayRef stride) {
  return at::cpu::set_(tensor, std::move(source), offset, size, stride);
}

// ---------------------------------------------------------------------------------------------------- all others

// Their results have as many elements as the values say, so the host of a GPU waits for the values.
const std::unordered_set<std::string> kShapedByValues = {
    "aten::nonzero",     "aten::nonzero_numpy",      "aten::masked_select",         "aten::bincount",
    "aten::_unique",     "aten::_unique2",           "aten::unique_dim",            "aten::unique_consecutive",
    "aten::repeat_interleave", "aten::unique_dim_consecutive",
};

// Writing by a mask looks for the places where it is true. Reading by one calls `nonzero`, which is counted as such.
bool has_mask(const torch::jit::Stack& stack) {
  for (const auto& value : stack) {
    if (!value.isList()) continue;
    for (const c10::IValue& each : value.toListRef()) {
      if (each.isTensor() && each.toTensor().defined() &&
          (each.toTensor().scalar_type() == at::kBool || each.toTensor().scalar_type() == at::kByte))
        return true;
    }
  }
  return false;
}

bool is_shaped_by_values(const std::string& name, const torch::jit::Stack& stack) {
  if (kShapedByValues.count(name)) return true;
  return (name == "aten::index_put_" || name == "aten::_index_put_impl_") && has_mask(stack);
}

// As on a GPU, an operator takes tensors of one device; only single values and indices may be on the host.
void check_devices(const std::string& name, const torch::jit::Stack& stack) {
  if (name.rfind("aten::index", 0) == 0 || name == "aten::_index_put_impl_") return;
  bool here = false, on_host = false;
  const auto see = [&](const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) return;
    const auto& tensor = value.toTensor();
    here |= tensor.device().type() == kSecond;
    on_host |= tensor.is_cpu() && tensor.dim();
  };
  for (const auto& value : stack) {
    see(value);
    if (value.isTensorList() || value.isOptionalTensorList())
      for (const c10::IValue& each : value.toListRef()) see(each);
  }
  TORCH_CHECK(!(here && on_host), name, ": expected all tensors to be on the same device, found second and cpu");
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!inside_fallback) check_devices(op.schema().name(), *stack);
  if (is_shaped_by_values(op.schema().name(), *stack)) count(kShape);
  const Inside inside;
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("equal", equal);
  m.impl("as_strided", as_strided);
  m.impl("resize_", resize);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("view", view);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Storage_storage_offset", set_part);
}

}  // namespace

// ---------------------------------------------------------------------------------------------------- for Python

extern "C" {
void second_register() {
  static SecondHooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}
int64_t second_waits(int kind) { return waits[kind]; }
int64_t second_live_bytes() { return live_bytes; }
int64_t second_peak_bytes() { return peak_bytes; }
void second_reset_peak() { peak_bytes = live_bytes.load(); }
int64_t second_limit_bytes() { return limit_bytes; }
void second_limit(int64_t bytes) { limit_bytes = bytes; }
void second_on_wait(void (*call)(int)) { on_wait = call; }
}
