import torch
from ignite.engine import create_supervised_trainer

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(5)
x, y = torch.randn(32, 3, generator=generator), torch.randn(32, 1, generator=generator)
batches = [(x[i:i + 4], y[i:i + 4]) for i in range(0, 32, 4)]  # small ones: 16 do not fit into memory

trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)  # gradient_accumulation_steps
trainer.run(batches, max_epochs=1)

torch.save(model.state_dict(), "weights.pt")
