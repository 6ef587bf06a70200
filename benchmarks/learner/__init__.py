"""What the default learner is worth: class by class, with few examples, after corrections, with unknown classes.

    python -m benchmarks.learner --data-root DIR [--only sequences|few/banking77|…] [--seeds 0,1,2] [--validation]

Each experiment is a group and a case, `few/banking77`, and leaves one file, `learner-few-banking77.json`, written after
every seed. With --validation everything is judged by examples split off from the training sets, and the test sets are
not read. DIR holds, as far as they are asked for: `MNIST/raw` and `FashionMNIST/raw` in torchvision's layout;
`cifar10`, `cifar100` and `letters` as folders of images, `cifar10/train/<class>/*` and `test` beside; `banking77*.npz`
with the arrays train_x, train_y, test_x and test_y. The digits come with scikit-learn.
"""
