"""Few labels and many pictures: a student that learns from a teacher, which is the student's moving average."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(29)
CLASSES, RAMP = 4, 15


def pictures(n, seed):
    g = torch.Generator().manual_seed(seed)
    prototypes = torch.randn(CLASSES, 1, 8, 8, generator=torch.Generator().manual_seed(2900))
    y = torch.randint(CLASSES, (n,), generator=g)
    return prototypes[y] + 0.7 * torch.randn(n, 1, 8, 8, generator=g), y


def noisy(x):
    return x + 0.2 * torch.randn_like(x)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 12, 3, padding=1)
        self.dropout = nn.Dropout(0.2)
        self.linear = nn.Linear(12 * 16, CLASSES)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.linear(self.dropout(x.flatten(1)))


def update_teacher(teacher, student, keep):
    with torch.no_grad():
        for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
            old.mul_(keep).add_(new, alpha=1 - keep)


def accuracy(net, x, y):
    was_training = net.training
    net.eval()
    with torch.no_grad():
        right = (net(x).argmax(1) == y).float().mean().item()
    net.train(was_training)
    return right


few_x, few_y = pictures(48, 1)
many_x, _ = pictures(480, 2)
test_x, test_y = pictures(100, 3)
student = Student()
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
for step in range(40):
    labelled, unlabelled = torch.randint(48, (16,)), torch.randint(480, (32,))
    logits = student(noisy(few_x[labelled]))
    supervised = F.cross_entropy(logits, few_y[labelled])
    with torch.no_grad():
        belief = teacher(noisy(many_x[unlabelled])).softmax(1)
    opinion = student(noisy(many_x[unlabelled])).log_softmax(1)
    consistency = F.kl_div(opinion, belief, reduction="batchmean")
    loss = supervised + min(1.0, step / RAMP) * consistency
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    update_teacher(teacher, student, keep=min(0.95, 1 - 1 / (step + 2)))
    if step % 10 == 9:
        print(f"{step + 1}: {loss.item():.3f} student {accuracy(student, test_x, test_y):.2f}", end=" ")
        print(f"teacher {accuracy(teacher, test_x, test_y):.2f}")
torch.save({"student": student.state_dict(), "teacher": teacher.state_dict()}, "both.pt")
